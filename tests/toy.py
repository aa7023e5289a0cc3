"""A tiny federation and a tiny network, for tests of everything around the algorithms."""

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import augment, core, engine, local, losses
from fedwin.algorithms import ALGORITHMS
from fedwin.data.dataset import Dataset, Partition
from fedwin.data.federation import federate
from fedwin.engine import evaluate, sampling
from fedwin.engine.strategy import Strategy
from fedwin.models.model import Model, Output

CLASSES, PIXELS = 4, 6


def dataset(size=80, seed=0):
    generator = np.random.default_rng(seed)
    means = generator.standard_normal((CLASSES, PIXELS)) * 2

    def split(count):
        y = np.arange(count) % CLASSES
        return {
            "x": (means[y] + generator.standard_normal((count, PIXELS))).astype(np.float32),
            "y": y.astype(np.int32),
        }

    return Dataset("toy", split(size), split(41), CLASSES)


def partition(clients=10, size=80, equal=True, seed=1):
    generator = np.random.default_rng(seed)
    order = generator.permutation(size).astype(np.int32)
    if equal:
        cuts = np.arange(0, size + 1, size // clients)
    else:
        cuts = np.concatenate([[0], np.sort(generator.choice(np.arange(1, size), clients - 1, replace=False)), [size]])
    return Partition(order, cuts.astype(np.int64))


def federation(clients=10, equal=True):
    return federate(dataset(), partition(clients, equal=equal))


def network():
    def classifier(params, features):
        return features @ params["classifier"]["kernel"] + params["classifier"]["bias"]

    def init(key):
        first, last = jax.random.split(key)
        return core.Variables(
            {
                "hidden": jax.random.normal(first, (PIXELS, 5)) * 0.5,
                "classifier": {"kernel": jax.random.normal(last, (5, CLASSES)) * 0.5, "bias": jnp.zeros(CLASSES)},
            }
        )

    def apply(variables, batch, key, train):
        features = jnp.tanh(batch["x"] @ variables.params["hidden"])
        return Output(classifier(variables.params, features), features, variables.stats)

    return Model(init, apply, classifier, ("classifier",), "toy", CLASSES)


def solver(fed, **changes):
    options = dict(loss=losses.cross_entropy(network()), lr=0.1, batch_size=3, epochs=2, equal_size=fed.equal_size)
    return local.Solver(**(options | changes))


def setting(fed, clients_per_round=4, num_rounds=20):
    return core.Setting(
        fed.num_clients,
        clients_per_round,
        num_rounds,
        init_fn=lambda key: network().init(key).params,
        model=network(),
    )


def build(name, fed, **options):
    return ALGORITHMS.build(name, setting(fed), solver(fed, **options))


def start(algorithm, observers, fed, strategy=Strategy(), seed=0):
    run = engine.init(
        algorithm,
        observers,
        network().init(jax.random.key(seed)),
        fed.num_clients,
        jax.random.key(seed + 100),
        jax.random.key(0),
    )
    return strategy.place(run, strategy.placement(run)), strategy.place(fed.store())


def cohorts(fed, rounds, clients=4, width=None, seed=0, rows=None):
    rows = rows or rounds
    ids = np.full((rows, width or clients), -1, np.int32)
    ids[:rounds, :clients] = sampling.cohorts(seed, 0, rounds, fed.num_clients, clients)
    return engine.Cohorts(ids, np.maximum(ids, 0), np.where(ids >= 0, ids, fed.num_clients).astype(np.int32))


def probe(strategy=Strategy()):
    return evaluate.make_probe(network(), augment.normaliser(None, None), evaluate.classification(), strategy)


def tests(fed, strategy=Strategy(), batch_size=16):
    return evaluate.batches(fed.dataset.test, batch_size, strategy.num_devices)
