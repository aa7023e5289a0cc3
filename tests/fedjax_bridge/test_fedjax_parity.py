"""Parity with FedJAX's algorithms on the same batches, initial parameters and cohorts."""

import sys

import fedjax
import numpy as np
import pytest

from fedwin import testing
from fedwin.fedjax_bridge import as_fedjax
from fedwin.testing import compile_options
from tests.fedjax_bridge import problem
from tests.programs import output_of

SAME = {
    "fedavg": "fedavg:server_lr=0.7",
    "fedprox": "fedprox:mu=0.5",
    "mime": "mime:beta=0.9,server_lr=0.8",
    "mimelite": "mimelite:beta=0.9,server_lr=0.8",
}


def fedjaxs(folder, *names):
    """Returns name -> what FedJAX's algorithm computes in every round."""
    output_of(sys.executable, "-m", "tests.fedjax_bridge.fedjax_alone", folder / "params.npz", *names)
    return np.load(folder / "params.npz")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    return fedjaxs(tmp_path_factory.mktemp("fedjax"), *SAME)


@pytest.mark.parametrize("name", SAME)
def test_five_rounds_equal_fedjax(name, theirs):
    data, network = problem.federated_data(), problem.model()
    batches = fedjax.ShuffleRepeatBatchHParams(problem.BATCH, num_epochs=problem.EPOCHS, skip_shuffle=True)
    given = dict(model=network, batch_hparams=batches, client_lr=problem.LR)
    algorithm = as_fedjax(SAME[name], **given, compiler_options=compile_options())
    state, sampler = algorithm.init(problem.initial(network)), problem.sampler(data)
    moved = problem.flat(state.params)
    for expected in theirs[name]:
        state, _ = algorithm.apply(state, sampler.sample())
        np.testing.assert_allclose(problem.flat(state.params), expected, rtol=1e-4, atol=1e-6)
    assert np.abs(problem.flat(state.params) - moved).max() > 1e-2
    assert len(algorithm.apply.traces) == 1


@pytest.mark.slow
def test_agnostic_fedavg_equals_fedjax(tmp_path):
    """Parameters and weights of domains, on clients of two domains."""
    x, y, domains = zip(*problem.DOMAINS, strict=True)
    p = testing.regression(
        x, y, problem.START, batch_size=2, epochs=problem.EPOCHS, lr=problem.LR, schedule=problem.COHORTS,
        info={"domain": np.array(domains, np.int32)}, batching="repeat",
    )  # fmt: skip
    choice = f"agnostic:lr={problem.DOMAIN_LR},domains=info,window={problem.WINDOW},batch_loss=sum,weighting=uniform"
    runs = testing.trajectory(p, p.build(choice, server_lr=0.8), len(problem.COHORTS))
    for run, expected in zip(runs, fedjaxs(tmp_path, "agnostic")["agnostic"], strict=True):
        weights = np.asarray(run.state.weights[:2])
        ours = [run.params["features"]["kernel"], run.params["classifier"]["bias"], *weights / weights.sum()]
        np.testing.assert_allclose(ours, expected, rtol=1e-5)
    assert abs(weights[0] / weights.sum() - 0.5) > 0.05
