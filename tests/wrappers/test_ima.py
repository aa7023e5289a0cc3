"""IMA: windows, steps and schedules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, local, testing, wrappers
from fedwin.wrappers.ima import ima_rate
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


def test_imas_exp_schedule_continues_the_base():
    base, setting = local.exponential(0.01, 0.01), core.Setting(100, 10, 400)
    exp = wrappers.WRAPPERS.build("ima:start=300", setting).rate(base)
    same(exp(jnp.asarray(300)), base(jnp.asarray(300)), 1e-18)
    as_base = wrappers.WRAPPERS.build("ima:start=300,decay=0.01", setting).rate(base)
    late = jnp.arange(290, 400)
    same(jax.vmap(as_base)(late), jax.vmap(base)(late), 1e-15)
    epoch = wrappers.WRAPPERS.build("ima:start=300,schedule=epoch", setting)
    same(jax.vmap(epoch.rate(base))(late), jax.vmap(base)(late), 0)


def test_ima_learning_rates_equal_their_formulas():
    base, first, late = local.exponential(0.01, 0.02), 5, np.arange(5, 13)
    at = lambda t: np.asarray(jax.vmap(base)(jnp.asarray(t)))
    top, j = at([first])[0], late - first
    expected = {
        "exp": top * 0.9**j,
        "exp_compound": at(late) * 0.9**j,
        "const": np.full(8, 1e-3),
        # The lowest rate is that of a cycle's last round.
        "cyclic": top + (1e-3 - top) * np.array([1, 2, 3, 4, 1, 2, 3, 4]) / 4,
        "epoch": at(late),
        "none": at(late),
    }
    for schedule, values in expected.items():
        rate = ima_rate(base, first, schedule, decay=0.1, low=1e-3, period=4)
        same(jax.vmap(rate)(jnp.asarray(late)), values, 1e-14)
    restarted = ima_rate(base, first, "epoch", period=4, lr_restart=True)
    same(jax.vmap(restarted)(jnp.asarray(late)), at(j), 1e-14)


@pytest.mark.parametrize("phase, shares", [("code", [3, 1, 2, 3]), ("swa", [1, 2, 3, 1])])
def test_swa_learning_rates_fall_to_the_second_rate_in_every_cycle(phase, shares):
    base, setting = local.exponential(0.01, 0.02), core.Setting(10, 2, 20)
    for text, low in (("", 0.01), (",second_lr=0.002", None)):
        swa = wrappers.WRAPPERS.build(f"swa:start=5,cycle=3,phase={phase}{text}", setting)
        high = np.asarray(jax.vmap(base)(jnp.arange(9)))
        bottom = low * high if low else np.full(9, 0.002)
        u = np.array([0, 0, 0, 0, 0, *shares]) / 3
        same(jax.vmap(swa.rate(base))(jnp.arange(9)), (1 - u) * high + u * bottom, 1e-14)
