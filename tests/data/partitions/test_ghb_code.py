"""Partitioner `ghb_code`: the split of the heavy-ball paper's code."""

from fedwin import data
from tests.data.files import balanced


def test_ghb_code_has_equal_sizes_after_moving_the_surplus():
    part = data.make_partition(balanced(10, 5_003), "ghb_code:alpha=0.5,tries=5", 50, 0)
    assert set(part.sizes) == {100, 101} and part.report["left_out"] == 0 and part.report["moved"] > 0
    runs = data.make_partition(balanced(10, 5_000), "ghb_code:alpha=0", 50, 0)
    assert ((runs.report["histogram"] > 0).sum(1) == 1).all()
