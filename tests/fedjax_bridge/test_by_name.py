"""as_fedjax with an algorithm's name, a fedjax.Model and FedJAX's batch hyper-parameters."""

import fedjax
import numpy as np
import optax
import pytest

import fedwin
from fedwin.algorithms import ALGORITHMS
from fedwin.errors import UserError
from fedwin.fedjax_bridge import bridge
from fedwin.testing import compile_options
from tests.fedjax_bridge import problem

QUICK = compile_options()
BATCHES = fedjax.ShuffleRepeatBatchHParams(problem.BATCH, num_epochs=problem.EPOCHS)
FEDERATION = dict(num_clients=12, clients_per_round=4, num_rounds=20)


def by_name(algorithm, **changes):
    given = dict(model=problem.model(), batch_hparams=BATCHES, client_lr=problem.LR, compiler_options=QUICK)
    return fedwin.as_fedjax(algorithm, **(given | changes))


def one_round(fed):
    start = fed.init(problem.initial(problem.model()))
    return fed.apply(start, problem.sampler(problem.federated_data()).sample())


@pytest.mark.parametrize(
    "name",
    ["fedprox:mu=0.1", "mime", *(pytest.param(n, marks=pytest.mark.slow) for n in ("fedavg", "fedcm", "fedavgm"))],
)
def test_the_least_that_one_can_say(name):
    state, told = one_round(by_name(name))
    assert np.isfinite(problem.flat(state.params)).all() and len(told) == 4


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_builds_by_name(name):
    assert by_name(name, sample_batch=problem.sample_batch(), **FEDERATION).apply.algorithm.phases


def test_wrappers_and_optimizers():
    wrapped = by_name(
        "fedavg", wrap=["ima:window=2,start=1"], client_optimizer=optax.adam(1.0), client_lr=0.01, num_rounds=4
    )
    state, _ = one_round(wrapped)
    assert np.isfinite(problem.flat(state.params)).all()


@pytest.mark.parametrize(
    "algorithm, changes, words",
    [
        ("scaffold", {}, ["scaffold needs num_clients", "data.num_clients()"]),
        ("feddyn", {}, ["feddyn needs num_clients"]),
        ("fedhbm", {"num_clients": 12}, ["fedhbm needs clients_per_round"]),
        ("fedfa", FEDERATION, ["fedfa needs sample_batch"]),
        ("fedavg", {"wrap": ["swa:start=0.5"]}, ["swa needs num_rounds"]),
        ("fedavg", {"client_lr": None}, ["'fedavg' needs client_lr=..."]),
    ],
)
def test_what_is_missing_is_named(algorithm, changes, words):
    with pytest.raises(UserError) as caught:
        one_round(by_name(algorithm, **changes))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    "batches, word",
    [
        (fedjax.ShuffleRepeatBatchHParams(4, num_epochs=None), "num_steps"),
        (fedjax.ShuffleRepeatBatchHParams(4, num_steps=7), "num_steps"),
        (fedjax.ShuffleRepeatBatchHParams(4, drop_remainder=True), "drop_remainder"),
        (fedjax.ShuffleRepeatBatchHParams(4, seed=1), "seed"),
    ],
)
def test_batches_that_cannot_be_made_are_refused(batches, word):
    with pytest.raises(UserError, match=word):
        by_name("fedavg", batch_hparams=batches)


def test_batches_are_fedjaxs():
    found = bridge.batch_options(fedjax.ShuffleRepeatBatchHParams(7, num_epochs=None, num_steps=9))
    assert found == {"batch_size": 7, "steps": 9, "batching": "repeat", "shuffle": True}


def test_a_built_algorithm_takes_no_arguments_of_building():
    built = by_name("fedavg").apply.algorithm
    with pytest.raises(UserError, match="client_lr is for an algorithm given by its name"):
        fedwin.as_fedjax(built, client_lr=0.1)
