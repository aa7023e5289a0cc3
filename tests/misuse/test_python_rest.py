"""Invalid use of as_fedjax, fedwin.load, registries, observers, wrappers, losses and plug-ins from Python."""

import fedjax
import jax
import pytest

import fedwin
from fedwin import core
from tests.misuse.test_python_config import Network, X, Y, refused

MODEL = fedjax.models.emnist.create_dense_model(only_digits=True)
BATCHES = fedjax.ShuffleRepeatBatchHParams
SETTING = core.Setting(10, 2, 5)
ALGORITHMS = fedwin.ALGORITHMS


def bridge(algorithm="fedavg", **options):
    usual = dict(model=MODEL, batch_hparams=BATCHES(batch_size=4, num_epochs=1), client_lr=0.1)
    return lambda: fedwin.as_fedjax(algorithm, **(usual | options))


def applied(clients, state=True):
    """Returns a call of apply."""

    def call():
        found = bridge()()
        begun = found.init(MODEL.init(jax.random.PRNGKey(0))) if state else None
        return found.apply(begun, clients)

    return call


CASES = {
    "unknown name": (bridge("fedavgg"), "'fedavgg' | 'fedavg'"),
    "flax module": (bridge(model=Network()), "model is a Network | fedjax.Model"),
    "hparams": (bridge(batch_hparams=3), "batch_hparams must be | not int"),
    "rate nan": (bridge(client_lr=float("nan")), "client_lr=nan | finite"),
    "fedjax optimiser": (bridge(client_optimizer=fedjax.optimizers.sgd(0.1)), "optax"),
    "unknown wrapper": (bridge(wrap=["imma"]), "'imma' | 'ima'"),
    "wrap text": (bridge(wrap="ima"), "wrap='ima' | list"),
    "observers list": (bridge(observers=["ema"]), "observers must be a dict"),
    "init without params": (lambda: bridge()().init(None), "init takes the model's parameters"),
    "no cohort": (applied([]), "no client of this round has an example"),
    "no state": (applied([(b"a", fedjax.ClientDataset({"x": X, "y": Y}), 0)], state=False), "state that init returns"),
    "load nothing": (lambda: fedwin.load(None), "directory is a NoneType"),
    "load from nowhere": (lambda: fedwin.load("gone"), "gone"),
    "a name with a colon": (lambda: ALGORITHMS.register("a:b", lambda s, t: None), "'a:b' | rename"),
    "no window": (lambda: fedwin.observers.wima(()), "readings=() | observers.ReadOut(name, window)"),
    "check of a number": (
        lambda: fedwin.testing.check_algorithm(3),
        "builder=3 | function | 'fedprox:mu=0.1'",
    ),
    "a problem that is none": (lambda: fedwin.testing.check_algorithm("fedavg", 3), "p=3 | testing.classification"),
    "a loss of no model": (lambda: fedwin.LOSSES.build("cross_entropy", None), "model=None | fedwin.models.Model"),
    "plug-ins as text": (lambda: fedwin.load_plugins("gone.py"), "imports='gone.py' | list"),
    "batches of nothing": (lambda: fedwin.Solver(None, 0.1, 0), "Solver: batch_size=0"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_misused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(*CASES[name])
    assert not list(tmp_path.iterdir())
