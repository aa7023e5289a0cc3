"""Parity with FedJAX's algorithms on the same batches, initial parameters and cohorts."""

import fedjax
import jax
import numpy as np
import pytest

from fedwin import testing
from fedwin.fedjax_bridge import as_fedjax
from fedwin.testing import compile_options
from tests.algorithms.identities import leaves
from tests.fedjax_bridge import problem

BATCHES = fedjax.ShuffleRepeatBatchHParams(problem.BATCH, num_epochs=problem.EPOCHS, skip_shuffle=True)
WHOLE = fedjax.PaddedBatchHParams(problem.BATCH)
SGD, MOMENTUM = fedjax.optimizers.sgd(problem.LR), fedjax.optimizers.sgd(problem.LR, 0.9)
SAME = {
    "fedavg": "fedavg:server_lr=0.7",
    "fedprox": "fedprox:mu=0.5",
    "mime": "mime:beta=0.9,server_lr=0.8",
    "mimelite": "mimelite:beta=0.9,server_lr=0.8",
}


def algorithms(network):
    """Returns name -> FedJAX's algorithm."""
    gradient, losses, own = fedjax.model_grad(network), fedjax.model_per_example_loss(network), fedjax.algorithms
    return {
        "fedavg": own.fed_avg.federated_averaging(gradient, SGD, fedjax.optimizers.sgd(0.7), BATCHES),
        "fedprox": own.fed_prox.fed_prox(losses, SGD, fedjax.optimizers.sgd(1.0), BATCHES, 0.5),
        "mime": own.mime.mime(losses, MOMENTUM, BATCHES, WHOLE, 0.8),
        "mimelite": own.mime_lite.mime_lite(losses, MOMENTUM, BATCHES, WHOLE, 0.8),
    }


def fedjaxs(algorithm, params, cohorts):
    """Returns the states of FedJAX's algorithm after every round."""
    states = []
    with pytest.MonkeyPatch.context() as patch:
        # A function that jax has removed and FedJAX still calls; nothing else gets it back.
        patch.setattr(jax, "tree_map", jax.tree.map, raising=False)
        state = algorithm.init(params)
        for clients in cohorts:
            state, _ = algorithm.apply(state, clients)
            states.append(state)
    return states


@pytest.mark.parametrize("name", SAME)
def test_five_rounds_equal_fedjax(name):
    network, sampler = problem.model(), problem.sampler(problem.federated_data())
    params, cohorts = problem.initial(network), [sampler.sample() for _ in range(problem.ROUNDS)]
    given = dict(model=network, batch_hparams=BATCHES, client_lr=problem.LR)
    algorithm = as_fedjax(SAME[name], **given, compiler_options=compile_options())
    state = algorithm.init(params)
    start = leaves(state.params)
    for clients, expected in zip(cohorts, fedjaxs(algorithms(network)[name], params, cohorts), strict=True):
        state, _ = algorithm.apply(state, clients)
        np.testing.assert_allclose(leaves(state.params), leaves(expected.params), rtol=1e-4, atol=1e-6)
    assert np.abs(leaves(state.params) - start).max() > 1e-2
    assert len(algorithm.apply.traces) == 1


# Client -> x, y and domain of a regression; every cohort holds both domains.
DOMAINS = (
    ([1.0, 2.0, 3.0], [1.0, 0.0, 2.0], 0),
    ([3.0, 1.0], [2.0, -1.0], 1),
    ([0.5, -1.0, 2.0, 1.5, 0.0], [1.0, 0.5, 0.0, 3.0, 2.0], 0),
    ([-2.0, 1.0, 1.0, 0.5], [4.0, 1.0, 2.0, 0.0], 1),
)
COHORTS = ((0, 1), (1, 2), (2, 3, 0), (3, 0), (0, 1))
START = (0.5, 0.1)


def squared(params, batch, key):
    return 0.5 * (params["w"] * batch["x"] + params["b"] - batch["y"]) ** 2


@pytest.mark.slow
def test_agnostic_fedavg_equals_fedjax():
    """Parameters and weights of domains, on clients of two domains."""
    theirs = fedjax.algorithms.agnostic_fed_avg.agnostic_federated_averaging(
        squared,
        SGD,
        fedjax.optimizers.sgd(0.8),
        fedjax.ShuffleRepeatBatchHParams(2, num_epochs=problem.EPOCHS, skip_shuffle=True),
        WHOLE,
        init_domain_weights=[0.5, 0.5],
        domain_learning_rate=0.4,
        domain_window_size=2,
        init_domain_window=[1.0, 1.0],
    )
    clients = [
        fedjax.ClientDataset({"x": np.float32(x), "y": np.float32(y), "domain_id": np.full(len(x), domain, np.int32)})
        for x, y, domain in DOMAINS
    ]
    cohorts = [[(b"%d" % i, clients[i], jax.random.PRNGKey(i)) for i in cohort] for cohort in COHORTS]
    states = fedjaxs(theirs, dict(zip("wb", map(np.float32, START))), cohorts)
    x, y, domains = zip(*DOMAINS, strict=True)
    p = testing.regression(
        x, y, START, batch_size=2, epochs=problem.EPOCHS, lr=problem.LR, schedule=COHORTS,
        info={"domain": np.array(domains, np.int32)}, batching="repeat",
    )  # fmt: skip
    choice = "agnostic:lr=0.4,domains=info,window=2,batch_loss=sum,weighting=uniform"
    runs = testing.trajectory(p, p.build(choice, server_lr=0.8), len(COHORTS))
    for run, expected in zip(runs, states, strict=True):
        weights = np.asarray(run.state.weights[:2])
        ours = [run.params["features"]["kernel"], run.params["classifier"]["bias"], *weights / weights.sum()]
        wanted = [expected.params["w"], expected.params["b"], *expected.domain_weights]
        np.testing.assert_allclose(ours, wanted, rtol=1e-5)
    assert abs(weights[0] / weights.sum() - 0.5) > 0.05
