"""Partitioner `dirichlet`: class shares per client."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedwin import data
from fedwin.data.partitions import fill
from tests.data.files import balanced, labeled

# Classes per client and share of the top class of reference simulations, CIFAR-10 sizes, 100 clients.
SHARES = {
    "alpha=0.05": (1.385, 0.945),
    "alpha=10": (9.5, 0.31),
    "alpha=0.05,order=rotate": (3.1, 0.88),
    "alpha=0.5,order=rotate": (4.8, 0.71),
    "alpha=0.05,prior=symmetric": (3.25, 0.80),
    "alpha=0.5,prior=symmetric": (8.7, 0.40),
}


def one_at_a_time(q, sizes, turns, rng):
    """The rule as it is written: weights on pools that are not empty, else the pools' sizes; one draw per turn."""
    left, histogram, fallbacks = np.array(sizes), np.zeros(q.shape), 0
    for k in turns:
        weights = q[k] * (left > 0)
        if weights.sum() == 0:
            weights, fallbacks = left, fallbacks + 1
        c = rng.choice(len(left), p=weights / weights.sum())
        left[c] -= 1
        histogram[k, c] += 1
    return np.append(histogram.ravel(), fallbacks)


@pytest.mark.parametrize("num_classes, clients, holders", [(10, 100, 10), (100, 100, 1), (100, 500, 5)])
def test_alpha_zero_gives_each_client_one_class(num_classes, clients, holders):
    part = data.make_partition(balanced(num_classes, 50_000), "dirichlet:alpha=0", clients, 0)
    assert ((part.report["histogram"] > 0).sum(1) == 1).all()
    assert ((part.report["histogram"] > 0).sum(0) == holders).all()
    assert part.report["left_out"] == 0 and "warning" not in part.report
    some = [data.make_partition(balanced(6, 12), "dirichlet:alpha=0", 5, s).report["histogram"] for s in range(20)]
    assert np.any([histogram.sum(0) == 0 for histogram in some], 0).all()  # any class may be left out


def test_alpha_zero_warns_where_classes_do_not_divide():
    with pytest.warns(UserWarning, match="clients with several classes: "):
        part = data.make_partition(labeled(np.repeat(np.arange(3), [5, 7, 8]), 3), "dirichlet:alpha=0", 4, 0)
        tiny = [data.make_partition(balanced(9, 90), "dirichlet:alpha=0,per_client=3", 9, s).report for s in range(5)]
    assert (part.sizes == 5).all() and part.report["warning"].endswith(": 1")
    assert np.any([report["histogram"] for report in tiny], (0, 1)).all()  # and not the first classes alone
    assert "warning" not in data.make_partition(labeled(np.zeros(50, int), 1), "dirichlet:alpha=0", 7, 0).report


@pytest.mark.parametrize("text", ["dirichlet:alpha=0,bins=5", "quantity:classes=1,bins=5"])
def test_quantile_bins_stand_for_the_classes_of_a_number(text):
    y = np.random.default_rng(0).lognormal(size=100).astype(np.float32)
    numbers = dataclasses.replace(labeled(np.zeros(100), 1), train={"y": y}, task="regression")
    part = data.make_partition(numbers, text, 5, 0)
    histogram = part.report["histogram"]
    assert (histogram.sum(0) == 20).all() and histogram.max(1).tolist() == [20] * 5
    bounds = sorted((y[part.client(k)].min(), y[part.client(k)].max()) for k in range(5))
    assert all(high < low for (_, high), (low, _) in zip(bounds, bounds[1:]))
    tied = dataclasses.replace(numbers, train={"y": np.repeat(np.float32([1, 2, 9]), [85, 10, 5])})
    assert data.make_partition(tied, "iid", 5, 0).report["histogram"].sum(0).tolist() == [85, 15]


@pytest.mark.parametrize("order", ["sequential", "rotate"])
@given(
    alpha=st.floats(1e-12, 1e6),
    clients=st.integers(1, 12),
    labels=st.lists(st.integers(0, 4), min_size=12, max_size=90),
)
def test_dirichlet_fills_every_client(order, alpha, clients, labels):
    part = data.make_partition(labeled(labels, 5), f"dirichlet:alpha={alpha},order={order}", clients, 1)
    assert (part.sizes == len(labels) // clients).all()
    assert part.report["left_out"] == len(labels) % clients
    assert 0 <= part.report["fallbacks"] <= len(labels)


@pytest.mark.parametrize("options", SHARES)
def test_dirichlet_matches_the_reference_statistics(options):
    classes, share = SHARES[options]
    histograms = [
        data.make_partition(balanced(10, 50_000), f"dirichlet:{options}", 100, s).report["histogram"] for s in range(3)
    ]
    assert np.mean([(h > 0).sum(1).mean() for h in histograms]) == pytest.approx(classes, rel=0.1)
    assert np.mean([(h.max(1) / h.sum(1)).mean() for h in histograms]) == pytest.approx(share, rel=0.06)


def test_empirical_and_symmetric_agree_draw_for_draw_on_balanced_classes():
    dataset = balanced(10, 5_000)
    one = data.make_partition(dataset, "dirichlet:alpha=1,prior=empirical", 50, 4)
    other = data.make_partition(dataset, "dirichlet:alpha=0.1,prior=symmetric", 50, 4)
    np.testing.assert_array_equal(one.order, other.order)


@pytest.mark.parametrize("order", ["sequential", "rotate"])
def test_block_draws_follow_the_one_at_a_time_law(order):
    q, sizes, repeats = np.array([[0.5, 0.5, 0], [0, 0, 1.0], [0, 0.2, 0.8]]), [4, 3, 2], 500
    pool = np.repeat(np.arange(3), sizes)
    blocks, singles = [], []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        pools = fill.Pools(pool, 3, rng)
        if order == "rotate":
            lists, fallbacks = fill.rotating(pools, q, 3, rng)
            turns = np.concatenate([rng.permutation(3) for _ in range(3)])
        else:
            lists, fallbacks = fill.sequential(pools, lambda k, is_open: q[k] * is_open, [1, 2, 0], 3, rng)
            turns = np.repeat([1, 2, 0], 3)
        histogram = np.array([np.bincount(pool[rows], minlength=3) for rows in lists])
        blocks.append(np.append(histogram.ravel(), fallbacks))
        singles.append(one_at_a_time(q, sizes, turns, rng))
    blocks, singles = np.array(blocks), np.array(singles)
    error = np.sqrt((blocks.var(0) + singles.var(0)) / repeats) + 1e-9
    assert np.abs((blocks.mean(0) - singles.mean(0)) / error).max() < 4.5
    assert blocks[:, -1].mean() > 0.5  # the case does exercise the fallback


def test_fallbacks_of_one_turn_are_drawn_without_replacement():
    pool, equal = np.array([0, 0, 1, 1]), 0
    for seed in range(600):
        rng = np.random.default_rng(seed)
        (first, second), _ = fill.rotating(fill.Pools(pool, 2, rng), np.zeros((2, 2)), 1, rng)
        equal += int(pool[first[0]] == pool[second[0]])
    assert equal / 600 == pytest.approx(1 / 3, abs=0.08)
