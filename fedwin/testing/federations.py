"""A tiny federation and a tiny network, for tests of data, observers, evaluation and resuming.

    from fedwin.testing import federations

    fed = federations.federation(equal=False)
    algorithm = federations.build("scaffold", fed)
    run, store = federations.start(algorithm, {}, fed)

These are a `Dataset`, a `Federation` and a `Model`, as in real runs. The problems of `fedwin.testing.families` are
smaller and made for the arithmetic of algorithms.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import augment, core, engine, local, losses, sampling
from fedwin.algorithms import ALGORITHMS
from fedwin.data.dataset import Dataset, Partition
from fedwin.data.federation import Federation, federate
from fedwin.engine import evaluate
from fedwin.engine.strategy import Strategy
from fedwin.models.model import Model, Output

CLASSES, FEATURES, SIZE = 4, 6, 80


def dataset(size: int = SIZE) -> Dataset:
    """Returns vectors from four Gaussian classes, `size` training examples and 41 test examples."""
    generator = np.random.default_rng(0)
    means = generator.standard_normal((CLASSES, FEATURES)) * 2

    def split(count):
        y = np.arange(count) % CLASSES
        x = means[y] + generator.standard_normal((count, FEATURES))
        return {"x": x.astype(np.float32), "y": y.astype(np.int32)}

    return Dataset("toy", split(size), split(41), CLASSES)


def partition(clients: int = 10, equal: bool = True) -> Partition:
    """Splits the examples at random, into parts of random sizes unless `equal`."""
    generator = np.random.default_rng(1)
    order = generator.permutation(SIZE).astype(np.int32)
    if equal:
        cuts = np.arange(0, SIZE + 1, SIZE // clients)
    else:
        cuts = np.concatenate([[0], np.sort(generator.choice(np.arange(1, SIZE), clients - 1, replace=False)), [SIZE]])
    return Partition(order, cuts.astype(np.int64))


def federation(clients: int = 10, equal: bool = True) -> Federation:
    """Returns `dataset()`, split by `partition()`."""
    return federate(dataset(), partition(clients, equal))


def network() -> Model:
    """Returns a network for `dataset()`, with one hidden layer and without statistics."""

    def classifier(params, features):
        return features @ params["classifier"]["kernel"] + params["classifier"]["bias"]

    def init(key):
        first, last = jax.random.split(key)
        return core.Variables(
            {
                "hidden": jax.random.normal(first, (FEATURES, 5)) * 0.5,
                "classifier": {"kernel": jax.random.normal(last, (5, CLASSES)) * 0.5, "bias": jnp.zeros(CLASSES)},
            }
        )

    def apply(variables, batch, key, train):
        features = jnp.tanh(batch["x"] @ variables.params["hidden"])
        return Output(classifier(variables.params, features), features, variables.stats)

    return Model(init, apply, classifier, ("classifier",), "toy", CLASSES)


def solver(fed: Federation, **changes) -> local.Solver:
    """Returns a solver of two local epochs of SGD on cross entropy."""
    options = dict(loss=losses.cross_entropy(network()), lr=0.1, batch_size=3, epochs=2, equal_size=fed.equal_size)
    return local.Solver(**(options | changes))


def setting(fed: Federation) -> core.Setting:
    """Returns the setting of a run of 20 rounds with 4 clients each."""
    model = network()
    return core.Setting(fed.num_clients, 4, 20, init_fn=lambda key: model.init(key).params, model=model)


def build(choice: str, fed: Federation, **changes) -> core.Algorithm:
    """Builds a registered algorithm, such as 'fedprox:mu=0.1', with `solver(fed, **changes)`."""
    return ALGORITHMS.build(choice, setting(fed), solver(fed, **changes))


def start(algorithm: core.Algorithm, observers, fed: Federation, strategy: Strategy = Strategy()):
    """Returns (RunState before the first round, Store of the clients), both placed on the strategy's devices."""
    model = network().init(jax.random.key(0))
    run = engine.init(algorithm, observers, model, fed.num_clients, jax.random.key(100), jax.random.key(0))
    return strategy.place(run, strategy.placement(run)), strategy.place(fed.store())


def cohorts(fed: Federation, rounds: int, clients: int = 4, width=None, seed: int = 0) -> core.Cohort:
    """Draws the cohorts of some rounds, arrays [rounds, width]; places beyond `clients` (default: none) are padding."""
    shape = rounds, width or clients
    ids, present = np.zeros(shape, np.int32), np.zeros(shape, bool)
    ids[:, :clients] = [sampling.cohort(seed, round, fed.num_clients, clients) for round in range(rounds)]
    present[:, :clients] = True
    return core.Cohort.of(ids, present)


def probe(strategy: Strategy = Strategy()):
    """Returns the evaluation of `network()`, as engine.Dispatch takes it."""
    return evaluate.make_probe(network(), augment.normalizer(None, None), evaluate.classification(), strategy)
