"""FedGMA: masks, thresholds and the extra step."""

import functools

import numpy as np
import pytest

from tests.problems import SIZES, one_round, stepping

STEPS = np.array(
    [[1.0, 1.0, -0.3, 0.0], [2.0, -0.5, -0.2, 0.0], [0.5, 1.5, -0.1, 0.0], [0.1, 0.2, 0.4, 0.0], [0.3, 0.1, -2.0, 1.0]]
)


@functools.cache
def masked(choice):
    """x after one round from 0 in which client i moves by STEPS[i]."""
    return np.asarray(one_round(stepping(STEPS, sizes=SIZES), choice).params["x"])


MEAN, SIGNS = np.array(SIZES) @ STEPS / sum(SIZES), np.sign(STEPS).sum(0)


@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize("threshold", [0.0, 0.4, 0.6, 1.0])
def test_a_step_is_taken_where_enough_signs_agree(mode, threshold):
    agreement = np.abs(SIGNS) / 5
    mask = np.where(agreement >= threshold, 1, agreement if mode == "soft" else 0)
    np.testing.assert_allclose(masked(f"fedgma:mode={mode},threshold={threshold}"), mask * MEAN, rtol=1e-5, atol=1e-6)


def extra_step(threshold):
    x = 0.7 * MEAN
    for d in STEPS:
        inside = (np.abs(SIGNS) > threshold * 5) & (np.sign(d) == np.sign(SIGNS))
        x -= 1 / 5 * inside * (d - MEAN)
    return x


def test_fedgmas_extra_step():
    for threshold in (0.8, 0.5):
        ours = masked(f"fedgma:mode=extra_step,server_lr=0.7,extra_lr=1.0,threshold={threshold}")
        np.testing.assert_allclose(ours, extra_step(threshold), rtol=1e-5, atol=1e-6)
    # Coordinates 1 and 2 agree to 3/5, which distinguishes the two thresholds.
    assert np.abs(extra_step(0.8) - extra_step(0.5)).max() > 0.1


@pytest.mark.parametrize("mode,threshold", [("soft", 0.4), ("hard", 0.4), ("extra_step", 0.8)])
def test_fedgmas_default_threshold_goes_with_the_mode(mode, threshold):
    text = f"fedgma:mode={mode},extra_lr=1.0"
    np.testing.assert_array_equal(masked(text), masked(f"{text},threshold={threshold}"))
    assert np.abs(masked(text) - masked(f"{text},threshold={1.2 - threshold}")).max() > 1e-3
