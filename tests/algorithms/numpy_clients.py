"""A federation of small linear regressions in plain numpy, which shares no code with the package.

Client i minimizes the mean of (w x + b - y)^2 / 2 over its examples, by passes over mini-batches in stored order whose
last one may be short.
"""

import functools

import jax
import numpy as np

from fedwin import core, engine, testing
from tests.golden_problems import vector

X = ([1.0, -0.5, 2.0], [0.3, 1.2], [-1.0, 0.4, 0.8, 1.5])
Y = ([1.0, 0.5, -1.0], [2.0, 2.5], [0.2, -0.7, 1.1, 0.0])
START = np.array([0.4, -0.2])
SCHEDULE = ((0, 1), (1, 2), (2, 0), (0, 1))
LR, BATCH, EPOCHS = 0.2, 2, 2
SIZES = np.array([3, 2, 4])


def problem(**kwargs):
    return testing.regression(X, Y, START, batch_size=BATCH, epochs=EPOCHS, lr=LR, schedule=SCHEDULE, **kwargs)


def batches(i):
    """Every local step's examples."""
    for _ in range(EPOCHS):
        for first in range(0, len(X[i]), BATCH):
            yield np.array(X[i][first : first + BATCH]), np.array(Y[i][first : first + BATCH])


def gradient(model, batch):
    x, y = batch
    error = model[0] * x + model[1] - y
    return np.array([np.mean(error * x), np.mean(error)])


def loss(model, i):
    return np.mean(0.5 * (model[0] * np.array(X[i]) + model[1] - np.array(Y[i])) ** 2)


def descend(model, i, direction=gradient):
    """The model after client i's local steps along -direction(model, batch)."""
    for batch in batches(i):
        model = model - LR * direction(model, batch)
    return model


class Adam:
    """The directions of Adam, with its bias corrections."""

    def __init__(self, b1=0.9, b2=0.999, eps=1e-8):
        self.b1, self.b2, self.eps = b1, b2, eps
        self.m = self.v = self.count = 0

    def __call__(self, g):
        self.count += 1
        self.m, self.v = self.b1 * self.m + (1 - self.b1) * g, self.b2 * self.v + (1 - self.b2) * g**2
        return self.m / (1 - self.b1**self.count) / (np.sqrt(self.v / (1 - self.b2**self.count)) + self.eps)


def shares(cohort, weighting="samples"):
    p = SIZES[list(cohort)] if weighting == "samples" else np.ones(len(cohort))
    return p / p.sum()


def fedavg(x, cohort):
    return shares(cohort) @ np.array([descend(x, i) for i in cohort])


def row(table, i):
    return vector(jax.tree.map(lambda leaf: leaf[i], table))


def found_at(place, run, method, ids):
    """What a run has at a place such as 'state.control': vectors of parameters, one for each of `ids` if there are."""
    if place == "evaluated":
        return vector(engine.read_out(method, {}, run)["model"].params)
    if place == "personal":
        own = lambda i: jax.tree.map(lambda leaf: leaf[i], run.table)
        return [vector(method.client_model(core.Variables(run.params), own(i)).params) for i in ids]
    part = lambda tree, name: tree[int(name)] if name.isdigit() else getattr(tree, name)
    tree = functools.reduce(part, place.split("."), run)
    if isinstance(tree, dict):
        return [row(tree, i) for i in ids] if ids else vector(tree)
    return np.asarray(tree)


def compare(choice, rule, rtol=1e-9, **options):
    """Every round of a method; `rule` yields place -> vector, or client -> vector, as numpy computes them."""
    p = problem(**options)
    method, rounds = p.build(choice), list(rule)
    for run, expected in zip(testing.trajectory(p, method, len(rounds)), rounds, strict=True):
        for place, values in expected.items():
            ids, values = (list(values), list(values.values())) if isinstance(values, dict) else ((), values)
            ours = found_at(place, run, method, ids)
            np.testing.assert_allclose(ours, values, rtol=rtol, atol=1e-12, err_msg=place)
