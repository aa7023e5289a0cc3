"""`fedwin.run`, data, models, as_fedjax, registries and plug-ins with fields and objects that cannot be."""

import types

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.linen import Dense

import fedwin
from fedwin import core, data, models
from fedwin.aggregation import Aggregator, Attack
from fedwin.clock import Clock
from fedwin.runs.choices import REGISTRIES
from fedwin.runs.config import Config
from fedwin.wrappers import Wrapper
from tests.misuse import calls
from tests.refusals import refused

BASE = dict(dataset="digits", model="digits_mlp", num_clients=20, clients_per_round=2, num_rounds=3, out_dir="run")


HAIKU = hk.transform(lambda batch: hk.Linear(10)(hk.Flatten()(batch["x"])))
X, Y = np.zeros((20, 8, 8, 1), np.float32), np.arange(20, dtype=np.int32) % 10
# Argument of run, what it says.
OBJECTS = [
    (dict(model=Dense(10)), "model | Dense | models.from_flax"),
    (dict(model=HAIKU), "model | Transformed | models.from_haiku"),
    (dict(model=fedjax.models.emnist.create_dense_model(only_digits=True)), "model | models.from_fedjax"),
    (dict(model="cnn"), "model is a str | Config(model=...)"),
    (dict(on_eval="patience"), "on_eval= | is not a function; give a function (round, seed, read_outs)"),
    (dict(on_eval=fedwin.callbacks.Callback), "on_eval= | is not a function; give a function"),
    (dict(dataset={"x": X, "y": Y}), "dataset is a dict | data.from_arrays"),
    (dict(dataset="digits"), "dataset is a str | Config(dataset=...)"),
    (dict(dataset=fedjax.InMemoryFederatedData({b"a": {"x": X, "y": Y}})), "dataset | data.from_fedjax"),
]


@pytest.fixture(autouse=True)
def nothing_is_run(monkeypatch, tmp_path):
    calls.no_run_begins(monkeypatch)
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())


def is_refused(call, said: str) -> None:
    """Checks that a call raises a UserError of one line that contains all parts of `said`."""
    assert len(refused(said.split(" | "), call)) < 1000


DIGITS = data.load("digits")


def arrays(train_x=X, train_y=Y, test_x=X, test_y=Y, **options):
    return lambda: data.from_arrays(train_x, train_y, test_x, test_y, **options)


def own(field, built, **more):
    """A check of a run one part of which is a user's, with a builder that returns `built`."""

    def check():
        REGISTRIES[field].register("own", lambda *context: built)
        fedwin.check(Config(**(BASE | more | {field: ["own"] if field in ("observe", "wrap") else "own"})))

    return check


def follower(update=lambda round, model, state: state, read=lambda model, state: {"own": model}):
    return core.Observer(lambda model: jnp.int32(0), update, read)


KEPT: list = []
MODEL = fedjax.models.emnist.create_dense_model(only_digits=True)


def bridge(**options):
    usual = dict(model=MODEL, batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=4, num_epochs=1), client_lr=0.1)
    return lambda: fedwin.as_fedjax("fedavg", **(usual | options))


CASES = {
    "labels too few": (arrays(train_y=Y[:5]), "train | differ in length"),
    "no training example": (arrays(X[:0], Y[:0]), "no training example"),
    "ragged": (arrays([[1, 2], [3]]), "same shape"),
    "unscaled images": (arrays(X.astype(np.int64), test_x=X.astype(np.int64)), "images are int64 | uint8"),
    "unscaled mean": (arrays(X.astype(np.uint8), test_x=X.astype(np.uint8), mean=127.5, std=127.5), "x / 255"),
    "mean of counts": (arrays(X[:, 0, :, 0].astype(int), test_x=X[:, 0, :, 0].astype(int), mean=0, std=1), "tokens"),
    "no y": (lambda: data.from_fedjax(*2 * [fedjax.InMemoryFederatedData({b"a": {"x": X}})]), "features | y"),
    "load None": (lambda: data.load(None), "dataset=None | text"),
    "a short tail": (lambda: data.make_partition(DIGITS, "iid", 20, 0, imbalance=0.5), "imbalance=0.5 | >= 1"),
    "split by None": (lambda: data.split_validation(data.make_partition(DIGITS, "iid", 20, 0), 0.1, None), "seed=None"),
    "a list of series": (lambda: data.from_series([[1.0, 2.0, 3.0]], window=1), "series is a list | give a dict"),
    "flax None": (lambda: models.from_flax(None, (8, 8, 1)), "None | flax.linen module"),
    "flax nnx": (lambda: models.from_flax(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), (2,)), "Linear is not | to_linen"),
    "nnx dropout": (lambda: models.from_flax(nnx.bridge.to_linen(nnx.Dropout, 0.5), (2,)), "nnx | flax.linen"),
    "flax class": (lambda: models.from_flax(Dense, (8, 8, 1)), "create one first"),
    "haiku array": (lambda: models.from_haiku(HAIKU, X), "sample_batch must be a dict"),
    "flax module": (bridge(model=Dense(10)), "model is a Dense | fedjax.Model"),
    "fedjax optimizer": (bridge(client_optimizer=fedjax.optimizers.sgd(0.1)), "optax"),
    "wrap text": (bridge(wrap="ima"), "wrap='ima' | list"),
    "init without params": (lambda: bridge()().init(None), "init takes the model's parameters"),
    "no state": (lambda: bridge()().apply(None, []), "state that init returns"),
    "a name with a colon": (lambda: fedwin.ALGORITHMS.register("a:b", lambda s, t: None), "'a:b' | rename"),
    "batches of a kind": (lambda: fedwin.Solver(print, 0.1, 1, batching="epochs"), "batching='epochs' | epoch, repeat"),
    "options as a number": (bridge(compiler_options=3), "compiler_options=3 must be a dict"),
    "init with a key": (lambda: bridge()().init(jax.random.PRNGKey(0)), "init takes the model's parameters"),
    "a large seed": (lambda: fedwin.check(Config(**(BASE | {"seeds": [2**70]}))), "seeds: '11805916207"),
    "no window": (lambda: fedwin.observers.wima(()), "readings=() | observers.ReadOut(name, window)"),
    "a problem that is none": (lambda: fedwin.testing.check_algorithm("fedavg", 3), "p=3 | testing.classification"),
    "a type of an object": (
        lambda: fedwin.check(Config(**BASE, precision="bfloat16"), model=models.build("digits_mlp", (8, 8, 1), 10)),
        "precision=bfloat16 does not reach | dtype of its layers",
    ),
    "plug-ins as text": (lambda: fedwin.load_plugins("gone.py"), "imports='gone.py' | list"),
    "a shift that is none": (own("client_shift", None), "client shift 'own' | must return Shift, not NoneType"),
    "work that is none": (own("local_work", None), "local work 'own' | must return a function"),
    "another dtype": (own("observe", follower(lambda r, m, s: s + 0.5)), "'observers.own' | from int32[] to float32[]"),
    "a failing update": (own("observe", follower(lambda r, m, s: s["x"])), "observer 'own' fails | test_python.py:"),
    "a list": (own("observe", follower(lambda r, m, s: KEPT.append(s) or sum(KEPT))), "observer 'own': a list | state"),
    "a read-out": (own("observe", follower(read=lambda m, s: {"model": m})), "observer 'own' | {'model': Variables}"),
    "a loss of two": (own("loss", lambda params, batch: 0.0), "a round with loss 'own' fails | takes 2 positional"),
    "a wrapper of none": (own("wrap", Wrapper("own", lambda algorithm: None)), "wrapper 'own' | return core.Algorithm"),
    "a rate that is a number": (own("wrap", Wrapper("own", rate=0.5)), "wrapper 'own': 0.5 must be a function"),
    "a wrapper without a name": (own("wrap", Wrapper(lambda algorithm: algorithm)), "begins with its name"),
    "all steps": (own("aggregate", Aggregator("own", lambda steps, *_: steps)), "shape (1, 5120) | one step, (5120,)"),
    "a share of attackers": (own("attack", Attack("own", 0.2)), "attack: count=0.2 | an integer in [0, 20]"),
    "more attackers": (own("attack", Attack("own", 21)), "attack: count=21 | an integer in [0, 20]"),
    "no new state": (own("observe", core.Observer(lambda m: (), lambda r, m, s: None, dict)), "'own' | returns None"),
    "no seconds": (own("clock", Clock(lambda seed, ids, load: ids * np.nan)), "clock: | finite numbers >= 0"),
    "no order": (own("clock", Clock(lambda *_: [0]), asynchronous="buffer:concurrency=3"), "clock: | >= 0, one per"),
}


@pytest.mark.parametrize("arguments, said", OBJECTS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_object_of_another_kind_says_what_to_call(arguments, said):
    is_refused(lambda: fedwin.run(Config(**BASE), quiet=True, **arguments), said)


@pytest.mark.parametrize("config", [{"algorithm": "fedavg"}, "fedavg", None, types.SimpleNamespace(imports=[])])
def test_what_is_no_config(config):
    is_refused(lambda: fedwin.run(config), "config is a | fedwin.Config(")


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be(name):
    is_refused(*CASES[name])
