"""Partitioners of equal shares: iid, and shards of sorted labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwin import data
from fedwin.errors import UserError
from tests.data.files import balanced, labeled

QUICK = settings(max_examples=25, deadline=None)


@given(n=st.integers(1, 300), clients=st.integers(1, 20), equal=st.booleans())
@QUICK
def test_iid_sizes_differ_by_at_most_one(n, clients, equal):
    dataset = labeled(np.zeros(n), 1)
    if clients > n:
        with pytest.raises(UserError, match="more than the"):
            data.make_partition(dataset, f"iid:equal={equal}", clients, 0)
        return
    part = data.make_partition(dataset, f"iid:equal={equal}", clients, 0)
    assert np.ptp(part.sizes) <= (0 if equal else 1)
    assert part.report["left_out"] == (n % clients if equal else 0)


@given(s=st.integers(1, 4), clients=st.integers(1, 12), labels=st.lists(st.integers(0, 9), min_size=48, max_size=150))
@QUICK
def test_shards_have_equal_sizes_and_few_classes(s, clients, labels):
    part = data.make_partition(labeled(labels, 10), f"shards:per_client={s}", clients, 0)
    size = len(labels) // (clients * s)
    assert (part.sizes == s * size).all()
    # A shard of a sorted list spans at most the classes that fit in it, and no more than two where classes are larger.
    counts = np.bincount(labels, minlength=10)
    if counts.min() >= size:
        assert ((part.report["histogram"] > 0).sum(1) <= 2 * s).all()


def test_shards_of_balanced_classes_hold_one_to_s_classes():
    part = data.make_partition(balanced(10, 50_000), "shards", 100, 0)
    classes = (part.report["histogram"] > 0).sum(1)
    assert (part.sizes == 500).all() and classes.min() >= 1 and classes.max() == 2
    assert set(np.unique(part.report["histogram"])) <= {0, 250, 500}
