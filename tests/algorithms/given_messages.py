"""Golden problems with prescribed client messages, from golden_ima_wsm.json."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedwin import local, testing
from tests import golden_problems as golden

DATA = golden.load("golden_ima_wsm.json")


def array(x):
    return jnp.asarray(x, float)


def quick(function, *args):
    """function(*args), compiled as one program."""
    return jax.jit(function, compiler_options=testing.compile_options())(*args)


class Given:
    """Local training whose result is known: the client returns `target(params, client)`."""

    optimizer = optax.sgd(1.0)

    def __init__(self, target, stats=lambda c: (), carry=()):
        self.target, self.stats, self.carry = target, stats, carry

    def __call__(self, params, c, rule=None, **kwargs):
        y = {"x": self.target(params["x"], c)}
        one = jnp.ones(())
        return local.Local(y, one, one, (), self.carry, self.stats(c), {})


def given(start, target, sizes=(1,), num_rounds=100, **kwargs):
    """A problem whose clients return `target(x, client)`; every client takes part in every round."""
    everyone = (tuple(range(len(sizes))),)
    p = testing.quadratic(
        [0.0] * len(sizes), [0.0] * len(sizes), start, steps=1, lr=1.0, schedule=everyone, sizes=sizes
    )
    return p._replace(solve=Given(target, **kwargs), setting=p.setting._replace(num_rounds=num_rounds))


def xs(runs):
    return np.stack([np.asarray(run.params["x"]) for run in runs])
