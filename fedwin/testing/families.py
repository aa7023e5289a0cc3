"""Families of small problems: quadratics, linear regressions, classifiers with label skew.

`schedule` contains the client ids of every round, repeated; the solver takes E `epochs` of batches of size B, or J
`steps`; further arguments are those of `problem`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import losses
from fedwin.core import Variables
from fedwin.models.model import Model, Output
from fedwin.testing.problems import Problem, problem


def quadratic(curvatures, centers, start, *, steps, lr, schedule, sizes=None, **kwargs) -> Problem:
    """Returns clients with quadratic losses that take `steps` local steps with the exact gradient.

        f_i(x) = a_i/2 ||x - b_i||^2

    Args:
      curvatures: a_i [K].
      centers: b_i [K] or [K, D].
      start: x_0 [D].
      sizes: N_i [K], which only serve as weights; by default 1 each.

    Example:
      >>> from fedwin.testing import trajectory
      >>> p = quadratic([1, 3], [0, 4], [1.0], steps=5, lr=0.1, schedule=((0, 1),))
      >>> run = trajectory(p, p.build("fedavg"), rounds=50)[-1]
      >>> round(float(run.params["x"][0]), 2)  # not 3, the minimizer of the mean: clients drift
      2.68
    """
    start = jnp.asarray(start, float)
    sizes = sizes if sizes is not None else [1] * len(curvatures)
    rows = [
        {"a": np.full((n, 1), a, float), "b": np.broadcast_to(np.asarray(b, float), (n, start.size))}
        for a, b, n in zip(curvatures, centers, sizes)
    ]

    def loss(params, batch, key, info):
        return losses.masked_mean(jnp.sum(0.5 * batch["a"] * (params["x"] - batch["b"]) ** 2, -1), batch)

    # One batch holds all examples of the largest client, so that a step is a full gradient step.
    solver = dict(lr=lr, batch_size=max(sizes), epochs=steps, shuffle=False)
    return problem({"x": start}, rows, loss, schedule, **(solver | kwargs))


def regression(x, y, start, *, batch_size, epochs, lr, schedule, **kwargs) -> Problem:
    """Returns linear regressions w x + b with the loss (w x + b - y)^2 / 2.

    w is the 'features' part of the model, b the 'classifier'.

    Args:
      x: one list of numbers per client.
      y: their targets, likewise.
      start: [w, b].
    """
    rows = [{"x": np.asarray(a, float), "y": np.asarray(b, float)} for a, b in zip(x, y)]
    start = jnp.asarray(start, float)
    params = {"features": {"kernel": start[0]}, "classifier": {"bias": start[1]}}

    def loss(params, batch, key, info):
        error = params["features"]["kernel"] * batch["x"] + params["classifier"]["bias"] - batch["y"]
        return losses.masked_mean(0.5 * error**2, batch)

    solver = dict(lr=lr, batch_size=batch_size, epochs=epochs, shuffle=False)
    return problem(params, rows, loss, schedule, **(solver | kwargs))


def classification(sizes=(4, 2, 3, 5), *, batch_size=2, epochs=2, lr=0.3, schedule=((0, 1), (2, 3), (3, 0)), **kwargs):
    """Returns a classifier with three classes, a hidden layer, label skew and a running statistic like BatchNorm's.

    Args:
      sizes: N_i [K]; client i has mostly class i mod 3.
      **kwargs: as in `problem`; `loss` is a registered loss, by default cross entropy.

    Example:
      >>> classification().setting.num_clients
      4
    """
    random = np.random.default_rng(0)
    labels = [np.where(np.arange(n) % 3 == 2, i + 1, i) % 3 for i, n in enumerate(sizes)]
    centers = np.array([[1.0, 0.0], [-0.5, 1.0], [-0.5, -1.0]])
    rows = [{"x": centers[y] + 0.2 * random.normal(size=(len(y), 2)), "y": y} for y in labels]
    counts = np.stack([np.bincount(y, minlength=3) for y in labels]).astype(np.int32)
    weights = random.normal(size=(2, 4)), random.normal(size=(4, 3))

    def init(key):
        drawn = tuple(
            0.3 * jax.random.normal(jax.random.fold_in(key, i), w.shape, float) for i, w in enumerate(weights)
        )
        params = {"hidden": {"kernel": drawn[0]}, "last": {"kernel": drawn[1], "bias": jnp.zeros(3)}}
        return Variables(params, {"mean": jnp.zeros(4)})

    def classifier(params, features):
        return features @ params["last"]["kernel"] + params["last"]["bias"]

    def apply(variables, batch, key, train):
        features = jnp.tanh(batch["x"] @ variables.params["hidden"]["kernel"])
        mask = batch.get("mask", jnp.ones(len(features)))
        mean = (mask.astype(features.dtype) @ features) / jnp.maximum(jnp.sum(mask), 1)
        moved = {"mean": 0.9 * variables.stats["mean"] + 0.1 * mean.astype(features.dtype)}
        return Output(classifier(variables.params, features), features, moved if train else variables.stats)

    model = Model(init, apply, classifier, ("last",), "three classes", 3)
    info = {"train": counts, "validation": np.zeros_like(counts)}
    loss = kwargs.pop("loss", losses.cross_entropy)(model)
    solver = dict(lr=lr, batch_size=batch_size, epochs=epochs) | kwargs
    draw = lambda key: init(key).params
    return problem(init(jax.random.key(1)), rows, loss, schedule, init_fn=draw, model=model, info=info, **solver)
