"""Partitioner `yurochkin`: Dirichlet shares of each class."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwin import data
from fedwin.errors import UserError
from tests.data.files import balanced, labeled

QUICK = settings(max_examples=25, deadline=None)


@given(
    alpha=st.floats(0.05, 50), clients=st.integers(2, 8), labels=st.lists(st.integers(0, 4), min_size=100, max_size=300)
)
@QUICK
def test_yurochkin_deals_everything_under_its_bounds(alpha, clients, labels):
    part = data.make_partition(labeled(labels, 5), f"yurochkin:alpha={alpha},min_size=3", clients, 0)
    assert part.report["left_out"] == 0 and part.sizes.min() >= 3
    assert part.sizes.max() <= len(labels) / clients + np.bincount(labels).max()


def test_yurochkin_sizes_differ_and_impossible_minima_are_refused():
    part = data.make_partition(balanced(10, 20_000), "yurochkin:alpha=0.1", 50, 0)
    assert part.sizes.min() >= 10 and part.sizes.std() > 50
    with pytest.raises(UserError, match="more than the"):
        data.make_partition(balanced(10, 100), "yurochkin:alpha=1", 20, 0)
    with pytest.raises(UserError, match="in 2 tries"):
        data.make_partition(balanced(10, 220), "yurochkin:alpha=0.01,max_tries=2", 20, 0)
