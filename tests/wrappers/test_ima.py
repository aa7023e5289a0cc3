"""IMA: windows, steps and schedules."""

import functools
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, engine, local, testing, wrappers
from fedwin.engine.strategy import Strategy
from fedwin.wrappers.ima import ima_rate
from tests import golden_problems as golden
from tests.algorithms.identities import T, differ, problem, same

pytestmark = pytest.mark.usefixtures("double")


@functools.cache
def ima_run(text, base="fedavg", rounds=T):
    p = problem("partial")
    p = p._replace(setting=p.setting._replace(num_rounds=rounds))
    found = [wrappers.WRAPPERS.build(text, p.setting)] if text else []
    return [golden.vector(run.params) for run in testing.trajectory(p, p.build(base, *found), rounds)]


@pytest.mark.parametrize("placement", ["post", "pre,reset=none"])
def test_ima_of_one_model_is_the_base_method(placement):
    assert np.array_equal(ima_run(f"ima:window=1,start=0,schedule=none,placement={placement}"), ima_run(""))


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_ima_that_never_starts_is_the_base_method(placement):
    assert np.array_equal(ima_run(f"ima:window=3,start={T},placement={placement}"), ima_run(""))


def test_ima_moves_by_the_change_of_its_window():
    window, start = 3, 5
    p = problem("partial")
    ima = wrappers.WRAPPERS.build(f"ima:window={window},start={start},schedule=none", p.setting)
    algorithm = p.build("fedavg", ima)
    plain = jax.jit(functools.partial(engine.one_round, p.build("fedavg"), {}, Strategy(1), p.n_max))
    x = testing.trajectory(p, algorithm, T)
    aggregates = []
    for t in range(T):
        # The aggregate of a round is what the base method makes of the same start.
        begin = p.start(p.build("fedavg")) if t == 0 else x[t - 1]._replace(state=())
        aggregates.append(golden.vector(plain(begin, p.store, p.cohort(t))[0].params))
    for t in range(T):
        now = golden.vector(x[t].params)
        if t < start:
            same(now, aggregates[t])
        else:
            same(now, np.mean(aggregates[t - window + 1 : t + 1], axis=0))
        if t > start:
            same(now, golden.vector(x[t - 1].params) + (aggregates[t] - aggregates[t - window]) / window)


def given_aggregates(values, window):
    """The last broadcast of IMA over a method whose aggregate in round t is values[t], independent of the broadcast."""
    # Curvature 1 at rate 1: one step leads to the center.
    cycle = [[i] for i in range(len(values))]
    p = testing.quadratic([1.0] * len(values), values, np.zeros(len(values[0])), steps=1, lr=1.0, schedule=cycle)
    p = p._replace(setting=p.setting._replace(num_rounds=len(values)))
    ima = wrappers.WRAPPERS.build(f"ima:window={window},start=0,schedule=none", p.setting)
    return np.asarray(testing.trajectory(p, p.build("fedavg", ima), len(values))[-1].params["x"])


def test_imas_mean_of_equal_models_is_that_model():
    model = [0.1, -2.3, 1 / 3]
    for window in (2, 3, 5):
        same(given_aggregates([[7.0, 7.0, 7.0]] + window * [model], window), model, 1e-15)


def test_rounds_before_imas_start_do_not_depend_on_the_window():
    short, long = (ima_run(f"ima:window={w},start=6") for w in (2, 5))
    assert np.array_equal(short[:6], long[:6])
    assert np.array_equal(short[:6], ima_run("")[:6])
    differ(short[6:], long[6:])


@pytest.mark.parametrize("schedule", get_args(wrappers.Schedule))
def test_imas_schedules_agree_before_the_start(schedule):
    base = local.exponential(0.01, 0.01)
    ima = wrappers.WRAPPERS.build(f"ima:schedule={schedule},start=300", core.Setting(100, 10, 400))
    rounds = jnp.arange(300)
    same(jax.vmap(ima.rate(base))(rounds), jax.vmap(base)(rounds), 0)


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
