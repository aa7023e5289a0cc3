"""as_fedjax with an algorithm's name, a fedjax.Model and FedJAX's batch hyper-parameters."""

import fedjax
import pytest

import fedwin
from fedwin.algorithms import ALGORITHMS
from fedwin.testing import compile_options
from tests.fedjax_bridge import problem
from tests.refusals import refused

QUICK = compile_options()
BATCHES = fedjax.ShuffleRepeatBatchHParams(problem.BATCH, num_epochs=problem.EPOCHS)
FEDERATION = dict(num_clients=12, clients_per_round=4, num_rounds=20)


def by_name(algorithm, **changes):
    given = dict(model=problem.model(), batch_hparams=BATCHES, client_lr=problem.LR, compiler_options=QUICK)
    return fedwin.as_fedjax(algorithm, **(given | changes))


def one_round(fed):
    start = fed.init(problem.initial(problem.model()))
    return fed.apply(start, problem.sampler(problem.federated_data()).sample())


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "agnostic"])
def test_every_algorithm_builds_by_name(name):
    assert by_name(name, sample_batch=problem.sample_batch(), **FEDERATION).apply.algorithm.phases


@pytest.mark.parametrize(
    "algorithm, changes, words",
    [
        ("scaffold", {}, ["scaffold needs num_clients", "data.num_clients()"]),
        ("fedfa", FEDERATION, ["fedfa needs sample_batch"]),
        ("agnostic", FEDERATION, ["agnostic weights clients", "use fedwin.run"]),
        ("fedavg", {"client_lr": None}, ["'fedavg' needs client_lr=..."]),
        ("fedavg", FEDERATION | {"wrap": ["dp:clip=1,noise=1"]}, ["dp: a FedJAX program draws its own cohorts"]),
        ("fedavg", {"total_examples": -5}, ["as_fedjax", "total_examples=-5"]),
        ("fedavg", {"wrap": ["quantize", "topk"]}, ["wrap=quantize: --wrap=topk after it"]),
        ("fedavg", {"observers": {"wima": "wima:window=3"}}, ["observers must be a dict, name -> Observer"]),
        ("fedavg", {"batch_hparams": fedjax.ShuffleRepeatBatchHParams(4, num_steps=7)}, ["num_steps"]),
        ("fedavg", {"batch_hparams": fedjax.ShuffleRepeatBatchHParams(4, drop_remainder=True)}, ["drop_remainder"]),
    ],
)
def test_what_is_missing_is_named(algorithm, changes, words):
    refused(words, lambda: one_round(by_name(algorithm, **changes)))
