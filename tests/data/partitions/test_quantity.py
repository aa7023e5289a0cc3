"""Partitioner `quantity`: a fixed number of classes per client."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwin import data
from tests.data.files import balanced

QUICK = settings(max_examples=25, deadline=None)


@given(s=st.integers(1, 6), clients=st.integers(6, 20))
@QUICK
def test_quantity_gives_exactly_s_classes(s, clients):
    part = data.make_partition(balanced(6, 600), f"quantity:classes={s}", clients, 0)
    assert ((part.report["histogram"] > 0).sum(1) == s).all()
    assert (part.report["histogram"] > 0)[np.arange(clients), np.arange(clients) % 6].all()
    assert part.report["left_out"] == 0
    for column in part.report["histogram"].T:
        assert np.ptp(column[column > 0]) <= 1
