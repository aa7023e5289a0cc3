"""Wrappers: what they refuse, how they meet statistics, schedules and each other."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedwin import engine, testing, wrappers
from fedwin.core import Setting
from fedwin.errors import UserError
from fedwin.wrappers import WRAPPERS

SETTING = Setting(10, 2, 100)


def leaves(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.parametrize(
    "text",
    [
        "ima:window=0",
        "ima:window=2.5",
        "ima:start=1.5",
        "ima:start=-1",
        "ima:placement=middle",
        "ima:reset=always",
        "ima:schedule=linear",
        "ima:decay=1.0",
        "ima:low=0",
        "ima:period=0",
        "swa:cycle=0",
        "swa:phase=late",
        "swa:second_lr=-0.1",
        "clip:norm=0",
        "clip",
        "imo",
    ],
)
def test_bad_parameters_are_refused_at_once(text):
    with pytest.raises(UserError):
        WRAPPERS.build(text, SETTING)


@pytest.mark.parametrize(
    "choice,reason", [("mime", "one round trip"), ("scaffold", "one mean step"), ("fedacg", "one mean step")]
)
def test_averaging_before_the_server_needs_one_mean_step(choice, reason):
    p = testing.regression([[1.0], [3.0]], [[1.0], [2.0]], [0.5, 0.1], batch_size=1, epochs=1, lr=0.1, schedule=[[0]])
    ima = WRAPPERS.build("ima:placement=pre", p.setting)
    with pytest.raises(UserError, match=reason):
        testing.trajectory(p, p.build(choice, ima), 1)


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_ima_averages_statistics_like_parameters(placement):
    p = testing.classification(shuffle=False)
    p = p._replace(setting=p.setting._replace(num_rounds=4))
    # From round 1 on the window holds two aggregates; round 0 is the base method's.
    ima = WRAPPERS.build(f"ima:window=2,start=1,schedule=none,reset=none,placement={placement}", p.setting)
    base, averaged = (testing.trajectory(p, p.build("fedavg", *w), 2) for w in ((), (ima,)))
    np.testing.assert_array_equal(leaves(averaged[0].stats), leaves(base[0].stats))
    expected = (leaves(base[0].stats) + leaves(base[1].stats)) / 2
    np.testing.assert_allclose(leaves(averaged[1].stats), expected, rtol=1e-6)
    np.testing.assert_allclose(
        leaves(averaged[1].params), (leaves(base[0].params) + leaves(base[1].params)) / 2, rtol=1e-5, atol=1e-6
    )


def test_swa_shows_its_average_only_from_the_start_on():
    p = testing.classification(shuffle=False)
    p = p._replace(setting=p.setting._replace(num_rounds=5))
    swa = WRAPPERS.build("swa:start=2,cycle=2,phase=code", p.setting)
    algorithm = p.build("fedavg", swa)
    start = p.start(algorithm)
    shown = [engine.read_out(algorithm, {}, run)["model"] for run in [start, *testing.trajectory(p, algorithm, 5)]]
    raw = [(run.params, run.stats) for run in [start, *testing.trajectory(p, algorithm, 5)]]
    for t in range(3):
        np.testing.assert_array_equal(leaves(shown[t]), leaves(raw[t]))
    # Rounds 2 and 3 show what round 2 started from; the first collection, after round 4, replaces it.
    np.testing.assert_array_equal(leaves(shown[3]), leaves(raw[2]))
    np.testing.assert_array_equal(leaves(shown[4]), leaves(raw[2]))
    np.testing.assert_array_equal(leaves(shown[5]), leaves(raw[5]))


def test_a_wrapper_leaves_constants_constant():
    p = testing.classification()
    none = WRAPPERS.build("ima:schedule=none", SETTING).solver(p.train)
    assert none.lr == p.train.lr and none.epochs == p.train.epochs and none.max_epochs is None
    epoch = WRAPPERS.build("ima:schedule=epoch,start=50,period=10", SETTING).solver(dataclasses.replace(p.train, epochs=3))
    assert epoch.max_epochs == 3
    assert [int(epoch.epochs(jnp.int32(t))) for t in (0, 49, 50, 60, 99)] == [3, 3, 3, 2, 1]


def test_clipping_bounds_every_clients_step():
    p = testing.quadratic([1.0, 1.0], [[3.0, 4.0], [0.3, 0.4]], [0.0, 0.0], steps=1, lr=1.0, schedule=[[0, 1]])
    (run,) = testing.trajectory(p, p.build("fedavg", WRAPPERS.build("clip:norm=1.0", p.setting)), 1)
    np.testing.assert_allclose(run.params["x"], (np.array([0.6, 0.8]) + np.array([0.3, 0.4])) / 2, rtol=1e-6)


def test_a_loose_clip_changes_nothing():
    p = testing.classification(shuffle=False)
    loose = WRAPPERS.build("clip:norm=1e6", p.setting)
    a, b = (testing.trajectory(p, p.build("fedavg", *w), 2)[-1] for w in ((), (loose,)))
    np.testing.assert_allclose(leaves(a.params), leaves(b.params), rtol=1e-6)


def test_wrapped_states_nest():
    p = testing.classification(optimizer=optax.sgd(1.0, 0.9), shuffle=False)
    both = [WRAPPERS.build(text, p.setting) for text in ("ima:window=2,start=0", "swa:start=1")]
    run = p.start(p.build("scaffold", *both))
    assert isinstance(run.state, wrappers.Wrapped) and isinstance(run.state.inner, wrappers.Wrapped)
    assert jax.tree.structure(run.state.inner.inner) == jax.tree.structure(run.params)
