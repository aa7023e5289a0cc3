"""Intervals over seeds and paired differences, against hand-computed values and scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from fedwin import analysis
from tests.analysis.common import RANDOM


def test_by_hand():
    """1, 2, 3: std 1, t(2, 0.975) = 4.302653 (any table), half width 4.302653 / sqrt(3)."""
    found = analysis.mean_interval({0: 1.0, 1: 2.0, 2: 3.0})
    assert found.mean == 2 and (found.seeds, found.of_seeds) == (3, 3)
    assert found.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert found.bounds == pytest.approx((-0.484138, 4.484138), rel=1e-5)


def test_one_seed_has_no_interval_and_none_no_mean():
    assert analysis.mean_interval({3: 0.25}) == (0.25, None, 1, 1)
    assert analysis.mean_interval({3: 0.25}).bounds is None
    assert analysis.mean_interval({0: None, 1: math.nan}) == (None, None, 0, 2)
    assert analysis.mean_interval({}) == (None, None, 0, 0)


def test_seeds_that_diverged_are_left_out_and_counted():
    whole = analysis.mean_interval({0: 1.0, 2: 4.0})
    for bad in (None, math.nan, math.inf):
        assert analysis.mean_interval({0: 1.0, 1: bad, 2: 4.0}) == whole._replace(of_seeds=3)


def test_pairs_cancel_what_seeds_have_in_common():
    """first = (10, 20, 30), method = first + (1, 2, 3): the difference is known far better than either mean."""
    first, method = {0: 10.0, 1: 20.0, 2: 30.0}, {2: 33.0, 0: 11.0, 1: 22.0}
    found = analysis.paired_interval(method, first)
    assert found == analysis.mean_interval({0: 1.0, 1: 2.0, 2: 3.0})
    assert found.half_width < analysis.mean_interval(method).half_width / 5
    values = [np.array([table[seed] for seed in range(3)]) for table in (method, first)]
    assert stats.ttest_rel(*values).confidence_interval(0.95).low == pytest.approx(found.bounds[0])
    assert analysis.paired_interval(first, first) == (0.0, 0.0, 3, 3)


def test_a_pair_needs_both():
    first = {0: 1.0, 1: None, 2: 3.0, 5: 7.0}
    found = analysis.paired_interval({0: 2.0, 1: 5.0, 2: math.nan, 9: 1.0}, first)
    assert found == (1.0, None, 1, 3)  # 5 and 9 are no pairs, 1 and 2 diverged in one of them
    assert analysis.mean_interval(analysis.pooled_gains([first, {0: 2.0, 1: 5.0, 2: math.inf}])) == (1.5, None, 1, 3)


def test_p_values_are_those_of_scipys_t_test():
    values = RANDOM(2).normal(1, 2, 7)
    assert analysis.p_value(dict(enumerate(values)), 0.5) == pytest.approx(stats.ttest_1samp(values, 0.5).pvalue)
    assert [analysis.p_value(dict.fromkeys(range(6), x), by) for x, by in ((1, 0), (1, 1), (0.1, 0.1))] == [0, 1, 1]


@pytest.mark.parametrize("p", [RANDOM(3).uniform(0, 1, 40) ** 4, [0.9, 0.024, 0.02, 0.012], [0.03, 0.02, 0.045, 0.026]])
def test_corrections_are_those_of_the_definitions(p):
    """Of four values, Holm's bounds are 1/80, 1/60, 1/40, 1/20 and Benjamini's 1/80, 1/40, 3/80, 1/20."""
    adjusted = stats.false_discovery_control(p, method="bh")
    assert analysis.rejected(p, "benjamini_hochberg") == (adjusted <= 0.05).tolist()
    order = sorted(range(len(p)), key=lambda k: p[k])
    steps = [p[k] <= 0.05 / (len(p) - rank) for rank, k in enumerate(order)]
    assert analysis.rejected(p, "holm") == [order.index(k) < steps.index(False) for k in range(len(p))]
    assert analysis.rejected([], "holm") == analysis.rejected([], "benjamini_hochberg") == []
