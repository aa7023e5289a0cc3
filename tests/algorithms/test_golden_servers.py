"""Golden values of golden_ima_wsm.json: IMA and server optimizers (keys g01 to g03)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, local, testing, wrappers
from tests.algorithms.given_messages import DATA, array, given, xs

pytestmark = pytest.mark.usefixtures("precision")


DRIVE = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 2.0], [2.0, 0.0], [0.5, 0.5], [0.0, -1.0]]


def test_golden_g01_ima(same):
    g = DATA["g01_ima"]
    drive = array(DRIVE)
    p = given([4.0, -4.0], lambda x, c: 0.5 * x + drive[c.round], num_rounds=g["R"])
    ima = wrappers.WRAPPERS.build(f"ima:window={g['P']},start={g['t_s']},schedule=none", p.setting)
    averaged = xs(testing.trajectory(p, p.build("fedavg", ima), g["R"]))
    same(averaged, g["broadcast_after_round"])
    same(xs(testing.trajectory(p, p.build("fedavg"), g["R"])), g["broadcast_without_ima"])
    # The window holds a_t = x_t / 2 + drive_t, not what was broadcast.
    before = np.concatenate([[[4.0, -4.0]], averaged[:-1]])
    same(0.5 * before + np.asarray(DRIVE), g["fma"])
    wrong = np.asarray(g["broadcast_if_window_held_ima_models"])
    assert np.abs(averaged[4] - wrong[4]).max() > 0.1


@pytest.mark.parametrize("mode", list(DATA["g02_schedule"]["lr"]))
def test_golden_g02_schedule(mode, precision):
    g = DATA["g02_schedule"]
    setting = core.Setting(100, 10, 400)
    schedule, _, restart = mode.partition("_restart")
    text = f"ima:schedule={schedule}" + (",lr_restart=true" if "restart" in mode else "")
    ima = wrappers.WRAPPERS.build(text, setting)
    rounds = jnp.asarray(g["rounds"], jnp.int32)
    rates = jax.vmap(ima.rate(local.exponential(0.01, 0.01)))(rounds)
    # A power of 400 in float32 leaves 2e-5.
    np.testing.assert_allclose(rates, g["lr"][mode], rtol=1e-9 if precision == "float64" else 5e-5)
    if mode in g["local_epochs"]:
        assert jax.vmap(ima.epochs(5))(rounds).tolist() == g["local_epochs"][mode]
    else:
        assert ima.epochs is wrappers.unchanged


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad"])
def test_golden_g03_server_opt(name, same):
    g, key = DATA["g03_server_opt"], name.removeprefix("fed")
    offsets = array(g["offsets"])
    p = given(g["x0"], lambda x, c: x + offsets[c.round])
    runs = testing.trajectory(p, p.build(name), len(g[key]))
    for run, expected in zip(runs, g[key]):
        # x + offset - x loses a digit before it is squared, and m / sqrt(v) divides small numbers.
        same(run.params["x"], expected["x"], rtol=1e-4)
        same(run.state.m["x"], expected["m"])
        same(run.state.v["x"], expected["v"], rtol=1e-4)


@pytest.mark.parametrize("reset", ["none", "at_start", "one_round_only"])
def test_golden_g03_adam_with_ima_before_the_optimizer(reset, same):
    g = DATA["g03_server_opt"]["adam_ima_pre"]
    averages = array(g["client_averages"])
    p = given([0.0], lambda x, c: averages[c.round] + 0 * x, num_rounds=5)
    text = f"ima:window={g['P']},start={g['t_s']},schedule=none,placement=pre,reset={reset}"
    runs = testing.trajectory(p, p.build("fedadam", wrappers.WRAPPERS.build(text, p.setting)), 5)
    same(xs(runs)[:, 0], g["x_after_round"][reset])
