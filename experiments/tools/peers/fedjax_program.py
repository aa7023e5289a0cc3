"""A FedJAX program whose cohorts change from round to round, with FedJAX's own FedAvg or one of fedwin's algorithms."""

import time

import fedjax
import jax
import numpy as np

import fedwin

from . import cases, fedjax_nets

# A client has this share of the case's examples at least, and a cohort this share of its clients.
FEWEST_EXAMPLES = 0.25
SMALLEST_COHORT = 1 / 3


def federation(case: cases.Case, generator: np.random.Generator) -> fedjax.FederatedData:
    """Returns clients of different sizes."""
    x, y = cases.examples(case)
    sizes = generator.integers(max(1, int(FEWEST_EXAMPLES * case.examples)), case.examples + 1, case.total)
    each = {f"{k:06d}".encode(): {"x": x[k, :size], "y": y[k, :size]} for k, size in enumerate(sizes)}
    return fedjax.InMemoryFederatedData(each)


def built(name: str, case: cases.Case, model: fedjax.Model, mean_cohort: int) -> fedjax.FederatedAlgorithm:
    """Returns FedJAX's FedAvg for '', else fedwin's algorithm of that name."""
    batches = fedjax.ShuffleRepeatBatchHParams(batch_size=case.batch, num_epochs=case.epochs)
    if name:
        numbers = dict(num_clients=case.total, clients_per_round=mean_cohort)
        return fedwin.as_fedjax(name, model=model, batch_hparams=batches, client_lr=case.lr, **numbers)
    sgd = fedjax.optimizers.sgd
    return fedjax.algorithms.fed_avg.federated_averaging(fedjax.model_grad(model), sgd(case.lr), sgd(1.0), batches)


def prepare(request):
    """Returns (run, facts): fields case, whose clients are the most of a cohort, and algorithm.

    Every task sees the same cohorts in the same order. Two rounds, one of them of the largest cohort, are run here, so
    that all programs are compiled.
    """
    case, generator = cases.from_fields(request["case"]), np.random.default_rng(0)
    data = federation(case, generator)
    least = max(1, int(SMALLEST_COHORT * case.clients))
    model = fedjax_nets.build(case.model, case.shape, case.classes)
    algorithm = built(request["algorithm"], case, model, (least + case.clients) // 2)
    ids = list(data.client_ids())
    state, rounds = algorithm.init(model.init(jax.random.PRNGKey(0))), 0
    facts = {"parameters": sum(p.size for p in jax.tree.leaves(state.params))}

    def one_round(clients: int) -> float:
        nonlocal state, rounds
        drawn = generator.choice(case.total, clients, replace=False)
        keys = jax.random.split(jax.random.PRNGKey(rounds), clients)
        cohort = [(ids[k], data.get_client(ids[k]), key) for k, key in zip(drawn, keys, strict=True)]
        jax.block_until_ready(keys)
        started = time.perf_counter()
        state, _ = algorithm.apply(state, cohort)
        jax.block_until_ready(state.params)
        rounds += 1
        return time.perf_counter() - started

    def run(rounds):
        return sum(one_round(generator.integers(least, case.clients + 1)) for _ in range(rounds))

    for clients in ((least + case.clients) // 2, case.clients):
        one_round(clients)
    return run, facts
