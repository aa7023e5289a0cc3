"""Sampling of cohorts."""

import numpy as np
import pytest

from fedwin import sampling
from fedwin.errors import UserError


def test_cohorts_are_a_function_of_seed_and_round():
    one = sampling.cohorts(3, 10, 5, 100, 10)
    np.testing.assert_array_equal(one[2], sampling.cohort(3, 12, 100, 10))
    assert not np.array_equal(one, sampling.cohorts(4, 10, 5, 100, 10))
    assert one.dtype == np.int32 and one.shape == (5, 10)


def test_no_repeats_and_uniform():
    drawn = sampling.cohorts(0, 0, 2000, 20, 5)
    assert all(len(set(row)) == 5 for row in drawn)
    counts = np.bincount(drawn.ravel(), minlength=20)
    # 500 expected for each; 5 standard deviations of a binomial(2000, 1/4).
    assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


def test_a_client_returns_after_geometric_gaps():
    drawn = sampling.cohorts(1, 0, 4000, 10, 1).ravel()
    gaps = np.diff(np.flatnonzero(drawn == 0))
    assert abs(gaps.mean() - 10) < 1.5 and abs(gaps.std() - np.sqrt(90)) < 2


def test_bad_cohorts():
    check = lambda ids: sampling.check_cohort(np.maximum(ids, 0), ids >= 0)
    with pytest.raises(UserError, match="cohort 1: duplicate client 4"):
        check(np.array([[0, 1, 2], [4, 3, 4]]))
    with pytest.raises(UserError, match="cohort 0: duplicate client 0"):
        check(np.array([[0, 1, 0]]))
    check(np.array([[0, 1, -1, -1], [1, 0, 2, 3]]))


def test_bad_clients_per_round():
    with pytest.raises(UserError, match="more than the federation's 10"):
        sampling.check_clients_per_round(11, 10)
    with pytest.raises(UserError, match="at least 1"):
        sampling.check_clients_per_round(0, 10)
