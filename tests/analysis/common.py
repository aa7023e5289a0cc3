"""Helpers of the analysis tests: golden file, models."""

import jax.numpy as jnp
import numpy as np

from fedwin.core import Variables
from tests import golden_problems as golden
from tests.golden_problems import array

DATA = golden.load("golden_ima_wsm.json")
RANDOM = np.random.default_rng
ONES = {"w": jnp.ones(2)}


def network(seed, scale=1.0):
    """A model of two leaves with a running statistic."""
    draw = RANDOM(seed).standard_normal
    kernel, bias, mean = (jnp.asarray(scale * draw(shape), np.float32) for shape in ((3, 4), (4,), (4,)))
    return Variables({"kernel": kernel, "bias": bias}, {"mean": mean})


def bowl(model):
    """The loss of g12: ||w - (1.5, 1.5, 1, 0)||^2."""
    return jnp.sum((model["w"] - array([1.5, 1.5, 1.0, 0.0])) ** 2)
