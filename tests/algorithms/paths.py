"""Local training that also records its path, on the second golden problem."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, engine, local
from fedwin.engine.strategy import Strategy
from tests.algorithms.identities import META, T, problem


class Recorder:
    """Local training that also reports the path of every client of the round, [K, J_max + 1, 2], as a metric."""

    def __init__(self, train, clients, most):
        self.train, self.shape = train, (clients, most + 1, 2)

    def __call__(self, params, c, rule=local.sgd, **kwargs):
        vector = lambda y: jnp.stack([y["features"]["kernel"], y["classifier"]["bias"]])

        def record(path, new, s, last):
            return path.at[c.id, s.j + 1].set(vector(new)), new

        path = jnp.zeros(self.shape).at[c.id, 0].set(vector(params))
        y = self.train(params, c, rule, carry=path, on_step=record, **kwargs)
        return y._replace(metrics={"path": core.Mean(y.carry, jnp.ones(()))})


def recorded_rounds(choice, variant):
    """Yields (run before, run after, client -> its path [J_i + 1, 2]) of every round."""
    p = problem(variant)
    recorded = p._replace(solve=Recorder(p.solve, p.setting.num_clients, max(META["J"])))
    algorithm = recorded.build(choice)
    one = jax.jit(functools.partial(engine.one_round, algorithm, {}, Strategy(1), p.n_max))
    before = p.start(algorithm)
    for t in range(T):
        run, metrics = one(before, p.store, p.cohort(t))
        paths = np.asarray(metrics["path"].total)
        yield before, run, {i: paths[i, : META["J"][i] + 1] for i in p.ids(t)}
        before = run


def gradient(i, theta, j):
    """The j-th mini-batch gradient of client i at theta = [w, b]."""
    size = META["batch"]
    batches = -(-len(META["x"][i]) // size)
    cut = slice((j % batches) * size, (j % batches + 1) * size)
    x, y = np.array(META["x"][i][cut]), np.array(META["y"][i][cut])
    error = theta[0] * x + theta[1] - y
    return np.array([np.mean(error * x), np.mean(error)])
