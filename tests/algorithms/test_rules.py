"""Rules of single methods that no golden value pins down: values against a few lines of numpy, limits, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedwin import testing
from fedwin.errors import UserError
from fedwin.wrappers import WRAPPERS

# One client that takes one step d = lr (b - x) in each of three coordinates.
CENTRES, START, LR = np.array([[3.0, -1.0, 0.5]]), np.array([1.0, 2.0, 0.5]), 0.1


def xs(choice, rounds=3):
    p = testing.quadratic([1.0], CENTRES, START, steps=1, lr=LR, schedule=[[0]])
    return [np.asarray(run.params["x"]) for run in testing.trajectory(p, p.build(choice), rounds)]


def by_hand(step, rounds=3):
    """`step(d) -> x_new - x`, fed with the client's step."""
    x, out = START, []
    for _ in range(rounds):
        x = x + step(LR * (CENTRES[0] - x))
        out.append(x)
    return out


def test_fedopts_adagrad_starts_at_zero_with_eps_outside_the_root():
    v = np.zeros(3)

    def step(d):
        nonlocal v
        v = v + d**2
        return 0.1 * d / (np.sqrt(v) + 0.01)

    np.testing.assert_allclose(xs("fedopt:optimizer=adagrad,server_lr=0.1"), by_hand(step), rtol=1e-5)


@pytest.mark.parametrize("name", ["adam", "yogi"])
def test_fedopt_without_bias_correction_is_the_papers_rule(name):
    plain = xs(f"fedopt:optimizer={name},server_lr=0.1,eps=0.1,bias_correction=false")
    np.testing.assert_allclose(plain, xs(f"fed{name}:server_lr=0.1,tau=0.1"), rtol=1e-6)
    assert np.abs(plain[0] - xs(f"fedopt:optimizer={name},server_lr=0.1,eps=0.1")[0]).max() > 0.01


# ----------------------------------------------------------------------------------------------------- FedGMA

STEPS = np.array(
    [[1.0, 1.0, -0.3, 0.0], [2.0, -0.5, -0.2, 0.0], [0.5, 1.5, -0.1, 0.0], [0.1, 0.2, 0.4, 0.0], [0.3, 0.1, -2.0, 1.0]]
)
SIZES = [1, 2, 1, 3, 1]


def masked(choice):
    """x after one round from 0 in which client i moves by STEPS[i]."""
    p = testing.quadratic([1.0] * 5, STEPS, np.zeros(4), steps=1, lr=1.0, schedule=[range(5)], sizes=SIZES)
    (run,) = testing.trajectory(p, p.build(choice), 1)
    return np.asarray(run.params["x"])


def extra_step(threshold, rate):
    mean = np.array(SIZES) @ STEPS / sum(SIZES)
    signs = np.sign(STEPS).sum(0)
    x = mean.copy()
    for d in STEPS:
        inside = (np.abs(signs) > threshold * 5) & (np.sign(d) == np.sign(signs))
        x -= rate / 5 * inside * (d - mean)
    return x


def test_fedgmas_extra_step():
    for threshold in (0.8, 0.5):
        ours = masked(f"fedgma:mode=extra_step,extra_lr=1.0,threshold={threshold}")
        np.testing.assert_allclose(ours, extra_step(threshold, 1.0), rtol=1e-5, atol=1e-6)
    # Coordinates 1 and 2 agree to 3/5: the two thresholds are told apart.
    assert np.abs(extra_step(0.8, 1.0) - extra_step(0.5, 1.0)).max() > 0.1


@pytest.mark.parametrize("mode,threshold", [("soft", 0.4), ("hard", 0.4), ("extra_step", 0.8)])
def test_fedgmas_default_threshold_goes_with_the_mode(mode, threshold):
    text = f"fedgma:mode={mode},extra_lr=1.0"
    np.testing.assert_array_equal(masked(text), masked(f"{text},threshold={threshold}"))
    assert np.abs(masked(text) - masked(f"{text},threshold={1.2 - threshold}")).max() > 1e-3


# ----------------------------------------------------------------------------------------------- client rate 0


@pytest.mark.parametrize("choice", ["fedcm", "fedadc", "fedadc:beta_local=1.0", "fednova:mu=0.5", "scaffold", "fedsam"])
def test_at_client_rate_zero_nothing_breaks_or_moves(choice):
    p = testing.classification(lr=0.0, shuffle=False)
    run = testing.trajectory(p, p.build(choice), 2)[-1]
    for leaf, first in zip(jax.tree.leaves(run.params), jax.tree.leaves(p.variables.params)):
        np.testing.assert_array_equal(leaf, first)
    for leaf in jax.tree.leaves((run.state, run.table)):
        assert np.isfinite(leaf).all()


def cycled(choice, second, rounds=4):
    """Runs whose client rate falls to `second` in every other round."""
    p = testing.quadratic([1.0, 2.0], [3.0, -2.0], [1.0], steps=2, lr=0.1, schedule=[[0, 1]])
    swa = WRAPPERS.build(f"swa:start=0,cycle=2,second_lr={second},evaluate=model", p.setting)
    return testing.trajectory(p, p.build(choice, swa), rounds)


def test_fedcm_at_rate_zero_is_the_limit_of_small_rates():
    zero, small = ([float(run.params["x"][0]) for run in cycled("fedcm:alpha=0.4", rate)] for rate in (0.0, 1e-6))
    np.testing.assert_allclose(zero, small, atol=1e-4)
    # The momentum of round 0, (1 - alpha) times its step, moves round 1.
    np.testing.assert_allclose(zero[1] - zero[0], 0.6 * (zero[0] - 1.0), rtol=1e-5)


def test_fedadc_at_rate_zero_stands_still_and_keeps_its_momentum():
    runs = cycled("fedadc:beta_global=0.6", 0.0)
    for name in ("params", "state"):
        before, after, later = (float(getattr(run, name)["x"][0]) for run in runs[:3])
        assert before == after != later


# ------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "rmsprop", "yogi"])
def test_fednova_needs_sgd_on_the_clients(name):
    p = testing.classification(optimizer=getattr(optax, name)(1.0))
    for choice in ("fednova", "fednova:mu=0.5"):
        with pytest.raises(UserError, match="clients must use SGD"):
            p.build(choice)


@pytest.mark.parametrize("momentum", [None, 0.5, 0.9])
def test_fednova_takes_sgd(momentum):
    p = testing.classification(optimizer=optax.sgd(1.0, momentum))
    p.build("fednova")
    if momentum:
        with pytest.raises(UserError, match="momentum"):
            p.build("fednova:mu=0.5")


def test_fedfa_refuses_sequences():
    p = testing.classification()
    labels = jnp.stack([p.store.examples["y"]] * 2, 1)
    p = p._replace(store=p.store._replace(examples=p.store.examples | {"y": labels}))
    with pytest.raises(UserError, match="fedfa.*one label per example"):
        testing.trajectory(p, p.build("fedfa"), 1)
