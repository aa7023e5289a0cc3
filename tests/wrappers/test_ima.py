"""IMA: windows, steps and schedules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, local, testing, wrappers
from tests import golden_problems as golden
from tests.algorithms.identities import T, problem, same

pytestmark = pytest.mark.usefixtures("double")


@functools.cache
def ima_run(text):
    p = problem("partial")
    p = p._replace(setting=p.setting._replace(num_rounds=T))
    found = [wrappers.WRAPPERS.build(text, p.setting)] if text else []
    return [golden.vector(run.params) for run in testing.trajectory(p, p.build("fedavg", *found), T)]


@pytest.mark.parametrize("placement", ["post", "pre,reset=none"])
def test_ima_of_one_model_is_the_base_method(placement):
    assert np.array_equal(ima_run(f"ima:window=1,start=0,schedule=none,placement={placement}"), ima_run(""))


def test_ima_that_never_starts_is_the_base_method():
    assert np.array_equal(ima_run(f"ima:window=3,start={T}"), ima_run(""))


@pytest.mark.parametrize("phase, shares", [("code", [3, 1, 2, 3]), ("swa", [1, 2, 3, 1])])
def test_swa_learning_rates_fall_to_the_second_rate_in_every_cycle(phase, shares):
    base, setting = local.exponential(0.01, 0.02), core.Setting(10, 2, 20)
    for text, low in (("", 0.01), (",second_lr=0.002", None)):
        swa = wrappers.WRAPPERS.build(f"swa:start=5,cycle=3,phase={phase}{text}", setting)
        high = np.asarray(jax.vmap(base)(jnp.arange(9)))
        bottom = low * high if low else np.full(9, 0.002)
        u = np.array([0, 0, 0, 0, 0, *shares]) / 3
        same(jax.vmap(swa.rate(base))(jnp.arange(9)), (1 - u) * high + u * bottom, 1e-14)
