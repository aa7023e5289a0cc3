"""Windows and delay lines: means against NumPy, rounding, spikes, packing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import window
from fedwin.residence import rings
from tests.refusals import refused

SIZES = (1, 3, 100)


def trajectory(rounds, size, seed=0):
    generator = np.random.default_rng(seed)
    return (1 + 0.01 * generator.standard_normal((rounds, size)).cumsum(0)).astype(np.float32)


def run(vectors, sizes):
    start = window.init(vectors.shape[1], sizes)
    push = lambda i, w: window.push(w, vectors[i], sizes)
    return jax.jit(lambda w, vectors: jax.lax.fori_loop(0, len(vectors), push, w))(start, vectors)


@pytest.mark.parametrize("rounds", [1, 2, 99, 100, 101, 250])
def test_means_equal_numpy_at_every_fill(rounds):
    vectors = trajectory(rounds, 8)
    state = run(jnp.asarray(vectors), SIZES)
    for i, w in enumerate(SIZES):
        np.testing.assert_allclose(window.mean(state, i, w), vectors[-w:].mean(0), rtol=1e-6)


def test_the_mean_of_an_empty_window_is_zero():
    state = window.init(4, SIZES)
    for i, w in enumerate(SIZES):
        np.testing.assert_array_equal(window.mean(state, i, w), np.zeros(4))


def test_means_stay_accurate_over_ten_thousand_rounds():
    vectors = trajectory(10_000, 32)
    state = run(jnp.asarray(vectors), SIZES)
    for i, w in enumerate(SIZES):
        exact = vectors[-w:].astype(np.float64).mean(0)
        error = np.linalg.norm(np.asarray(window.mean(state, i, w), np.float64) - exact) / np.linalg.norm(exact)
        assert error <= 1e-6


@pytest.mark.parametrize("spike", [1e3, 2e8, 1e30, np.inf, np.nan])
@pytest.mark.parametrize("at", [0, 4])
def test_a_mean_is_right_once_a_spike_has_left_the_window(spike, at):
    vectors = trajectory(40, 8, seed=1)
    vectors[at, 2], vectors[at + 1, 2], vectors[at + 1, 5] = spike, -1.7 * spike, spike / 3
    push = jax.jit(lambda w, v: window.push(w, v, (3, 7)))
    state = window.init(8, (3, 7))
    for t, vector in enumerate(vectors):
        state = push(state, vector)
        for i, w in enumerate((3, 7)):
            seen = vectors[max(t - w + 1, 0) : t + 1].astype(np.float64)
            mean = np.asarray(window.mean(state, i, w))
            if np.linalg.norm(seen, axis=1).max() <= window.LARGEST:
                np.testing.assert_allclose(mean, seen.mean(0), rtol=1e-6)
            else:
                assert np.isnan(mean).all()
            assert np.isfinite(state.sums[i]).all()


@pytest.mark.parametrize("rounds", [1, 5, 6, 17])
def test_weighted_means_equal_numpy_at_every_fill(rounds):
    vectors = trajectory(rounds, 8)
    state = window.init(8, (np.int64(3),), weighted=5)
    for vector in vectors:
        state = window.push(state, vector, (3,))
    weights = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625], np.float32)[: min(rounds, 5)]
    seen = vectors[::-1][:5].astype(np.float64)
    mean = window.weighted_mean(state, [*weights, *np.zeros(5 - len(weights))])
    np.testing.assert_allclose(mean, weights @ seen, rtol=1e-6)
    np.testing.assert_allclose(window.mean(state, 0, 3), seen[:3].mean(0), rtol=1e-6)


def test_a_weighted_mean_is_right_once_a_spike_has_left_the_window():
    vectors = trajectory(12, 8)
    vectors[3, 2], vectors[4, 1] = np.nan, 1e30
    state = window.init(8, (9,), weighted=4)
    for t, vector in enumerate(vectors):
        state = window.push(state, vector, (9,))
        mean = np.asarray(window.weighted_mean(state, jnp.full(4, 0.25) * (jnp.arange(4) <= t)))
        assert np.isnan(mean).all() if 3 <= t < 8 else np.isfinite(mean).all()
    np.testing.assert_allclose(mean, vectors[-4:].mean(0), rtol=1e-6)


def test_the_ring_is_not_copied():
    vectors = jnp.zeros((4, 1024))
    state = window.init(1024, (2, 500))
    step = lambda i, w: window.push(w, vectors[i % 4] + i, (2, 500))
    loop = jax.jit(lambda w, n: jax.lax.fori_loop(0, n, step, w), donate_argnums=0)
    text = loop.lower(state, 3).compile().as_text()
    # A copy of the ring would be an instruction `f32[501,1024] copy(...)`.
    assert not [line for line in text.splitlines() if "f32[501,1024]" in line and " copy(" in line]


def test_pack_and_unpack_are_inverse_and_keep_dtypes():
    tree = {"a": jnp.arange(6.0).reshape(2, 3).astype(jnp.bfloat16), "b": (jnp.float32(7), jnp.zeros((0, 2)))}
    packing = window.flat(tree)
    vector = packing.pack(tree)
    assert vector.dtype == jnp.float32 and vector.shape[0] % window.ALIGNMENT == 0
    back = packing.unpack(vector)
    jax.tree.map(np.testing.assert_array_equal, tree, back)
    assert jax.tree.map(lambda x: x.dtype, tree) == jax.tree.map(lambda x: x.dtype, back)


@pytest.mark.parametrize("tau", [1, 5])
def test_a_delay_line_returns_what_was_pushed_tau_pushes_ago(tau):
    line = window.delay(4, tau)
    pushed = []
    for t in range(12):
        expected = pushed[t - tau] if t >= tau else np.zeros(4)
        np.testing.assert_array_equal(line.oldest, expected)
        vector = np.full(4, t + 1.0, np.float32)
        pushed.append(vector)
        line = window.shift(line, vector)


@pytest.mark.parametrize("size", [0, 2.5, True])
def test_a_window_below_one_is_refused(size):
    refused("at least 1", window.init, 4, (size,))
    refused("at least 1", window.delay, 4, size)


def test_an_offloaded_window_may_be_larger_than_the_memory():
    """Its ring buffer of 64 TiB, which the system would not reserve, is replaced by the vectors of 3 rounds."""
    state = rings.allocate(window.init(1 << 20, (1 << 24,)), 3)
    assert state.ring.shape == ((1 << 24) + 1, 1 << 20) and state.ring.entered.shape == (3, 1 << 20)


def test_a_window_that_is_not_empty_is_not_offloaded():
    state = window.push(window.init(4, (2,)), jnp.ones(4), (2,))
    assert rings.allocate(state) is not None
    refused("before the first round; keep it on the device, --window=device", rings.allocate, state, 3)
