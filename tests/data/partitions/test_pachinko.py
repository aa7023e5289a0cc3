"""Partitioner `pachinko`: allocation on a tree of classes."""

import pytest

from fedwin import data
from tests.data.files import balanced


@pytest.mark.parametrize(
    "clients, n, coarse, fine", [(500, 50_000, 6.6, 21.8), (100, 10_000, 6.1, None), (100, 50_000, 7.7, 29.8)]
)
def test_pachinko_matches_the_reference_statistics(clients, n, coarse, fine):
    part = data.make_partition(balanced(100, n), "pachinko", clients, 0)
    histogram = part.report["histogram"]
    by_coarse = histogram.reshape(clients, 20, 5).sum(2)
    found = (by_coarse > 0).sum(1)
    assert (part.sizes == n // clients).all() and part.report["left_out"] == 0
    assert abs(found.mean() / coarse - 1) < 0.15
    if fine:
        assert abs((histogram > 0).sum(1).mean() / fine - 1) < 0.15
    if clients == 500:
        assert found.min() == 1 and 11 <= found.max() <= 15
        assert found[:100].mean() == pytest.approx(6.9, rel=0.1) and found[-100:].mean() == pytest.approx(5.2, rel=0.15)
        assert abs((by_coarse.max(1) / 100).mean() / 0.54 - 1) < 0.15
