"""The rule of each partitioner; `dirichlet` and published files have modules of their own."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import partition as partition_binary
from fedwin import data
from fedwin.data.dataset import Partition
from tests.data.files import balanced, labeled, refused


@given(n=st.integers(1, 300), clients=st.integers(1, 20), equal=st.booleans())
def test_iid_sizes_differ_by_at_most_one(n, clients, equal):
    dataset = labeled(np.zeros(n), 1)
    if clients > n:
        refused("more than the", data.make_partition, dataset, f"iid:equal={equal}", clients, 0)
        return
    part = data.make_partition(dataset, f"iid:equal={equal}", clients, 0)
    assert np.ptp(part.sizes) <= (0 if equal else 1)
    assert part.report["left_out"] == (n % clients if equal else 0)


@given(s=st.integers(1, 4), clients=st.integers(1, 12), labels=st.lists(st.integers(0, 9), min_size=48, max_size=150))
def test_shards_have_equal_sizes_and_few_classes(s, clients, labels):
    part = data.make_partition(labeled(labels, 10), f"shards:per_client={s}", clients, 0)
    size = len(labels) // (clients * s)
    assert (part.sizes == s * size).all()
    # A shard of a sorted list spans at most the classes that fit in it, and no more than two where classes are larger.
    counts = np.bincount(labels, minlength=10)
    if counts.min() >= size:
        assert ((part.report["histogram"] > 0).sum(1) <= 2 * s).all()


@given(s=st.integers(1, 6), clients=st.integers(6, 20))
def test_quantity_gives_exactly_s_classes(s, clients):
    part = data.make_partition(balanced(6, 600), f"quantity:classes={s}", clients, 0)
    assert ((part.report["histogram"] > 0).sum(1) == s).all()
    assert (part.report["histogram"] > 0)[np.arange(clients), np.arange(clients) % 6].all()
    assert part.report["left_out"] == 0 and "warning" not in part.report
    assert all(np.ptp(column[column > 0]) <= 1 for column in part.report["histogram"].T)
    with pytest.warns(UserWarning, match="clients with fewer than 2 classes: 2"):  # class 0 has three holders
        data.make_partition(labeled([0, 1, 1, 1], 2), "quantity:classes=2", 3, 0)


def test_counts_follow_the_definition():
    # The definition, client by client, from the same draws.
    clients, classes, least, sigma = 23, 3, 2, 1.5
    dataset = balanced(7, 1400)
    z = data.rng.generator(4, "power_law").lognormal(0.0, sigma, (clients, classes))
    weight = {(k, (k + j) % 7): z[k, j] for k in range(clients) for j in range(classes)}
    expected = np.zeros((clients, 7), int)
    for k, c in weight:
        total = sum(value for (_, other), value in weight.items() if other == c)
        holders = sum(other == c for _, other in weight)
        expected[k, c] = least + int(weight[k, c] / total * (200 - least * holders))
    part = data.make_partition(dataset, f"power_law:classes={classes},least={least},sigma={sigma}", clients, 4)
    np.testing.assert_array_equal(part.report["histogram"], expected)
    assert part.report["left_out"] == 1400 - expected.sum() < clients * classes


def test_the_usual_federation_has_the_published_spread():
    equal = data.make_partition(balanced(5, 500), "power_law:sigma=0,least=1", 10, 0)
    np.testing.assert_array_equal(equal.sizes, 50)
    # FedML's MNIST has 69,035 examples on 1,000 clients of two neighboring digits.
    part = data.make_partition(balanced(10, 70_000), "power_law", 1000, 0)
    np.testing.assert_array_equal((part.report["histogram"] > 0).sum(1), 2)
    assert 10 == part.sizes.min() and part.sizes.max() > 500
    assert 68.9 < part.sizes.mean() < 69.2 and np.median(part.sizes) < 0.6 * part.sizes.mean()


@given(
    alpha=st.floats(0.05, 50), clients=st.integers(2, 8), labels=st.lists(st.integers(0, 4), min_size=100, max_size=300)
)
def test_yurochkin_deals_everything_under_its_bounds(alpha, clients, labels):
    least = 3 if alpha >= 0.5 else 0  # with a smaller alpha a split with three each may not be found
    part = data.make_partition(labeled(labels, 5), f"yurochkin:{alpha=},min_size={least}", clients, 0, allow_empty=True)
    assert part.report["left_out"] == 0 and part.sizes.min() >= least
    assert part.sizes.max() <= len(labels) / clients + np.bincount(labels).max()


def test_yurochkin_sizes_differ_and_impossible_minima_are_refused():
    part = data.make_partition(balanced(10, 20_000), "yurochkin:alpha=0.1", 50, 0)
    assert part.sizes.min() >= 10 and part.sizes.std() > 50
    refused("more than the", data.make_partition, balanced(10, 100), "yurochkin:alpha=1", 20, 0)
    refused("in 2 tries", data.make_partition, balanced(10, 220), "yurochkin:alpha=0.01,max_tries=2", 20, 0)


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


def test_ghb_code_has_equal_sizes_after_moving_the_surplus():
    part = data.make_partition(balanced(10, 5_003), "ghb_code:alpha=0.5,tries=5", 50, 0)
    assert set(part.sizes) == {100, 101} and part.report["left_out"] == 0 and part.report["moved"] > 0
    of_three = lambda seed: data.make_partition(balanced(1, 3), "ghb_code:alpha=1e-6,tries=1", 2, seed)
    assert [of_three(seed).report["moved"] for seed in (0, 1)] == [2, 1]  # the second client had all, the first
    runs = data.make_partition(balanced(10, 5_000), "ghb_code:alpha=0", 50, 0)
    assert ((runs.report["histogram"] > 0).sum(1) == 1).all()


@pytest.mark.parametrize("inner", ["shards", "yurochkin:alpha=0.5;min_size=2", "quantity:classes=2", "iid"])
def test_domain_clients_hold_one_domain_and_domains_are_complete(inner):
    dataset = labeled(np.arange(4000) % 10, 10, domain=np.repeat(np.arange(5, dtype=np.int32), 800))
    part = data.make_partition(dataset, f"domain:inner={inner}", 100, 0)
    assert np.bincount(part.domain).tolist() == [20] * 5
    np.testing.assert_array_equal(dataset.train["domain"][part.order], np.repeat(part.domain, part.sizes))
    assert part.report["left_out"] == 0
    assert not (np.sort(part.domain) == part.domain).all()  # the order of the clients does not reveal the domain
    split = lambda d: {frozenset(part.client(k) % 800) for k in np.flatnonzero(part.domain == d)}
    assert split(0) != split(1)  # each domain has a draw of its own


def test_natural_clients_and_a_seeded_choice_of_them():
    lists = [np.arange(k * 3, k * 3 + 3) for k in range(10)]
    natural = Partition.from_lists(lists, ids=np.array([f"w{9 - k}" for k in range(10)]))
    dataset = labeled(np.arange(30) % 10, 10)
    dataset = data.Dataset("own", dataset.train, dataset.test, 10, natural=natural)
    assert data.make_partition(dataset, None, None, 0).ids.tolist() == natural.ids.tolist()
    chosen = data.make_partition(dataset, "natural", 4, 0)
    assert chosen.num_clients == 4
    for part in (chosen, *data.split_validation(chosen, 0.5, 0)):
        assert part.report["chosen_from"] == 10 and part.report["sizes"].tolist() == part.sizes.tolist()
    for k, own in enumerate(chosen.ids.tolist()):
        np.testing.assert_array_equal(chosen.client(k), natural.client(natural.ids.tolist().index(own)))
    assert set(data.make_partition(dataset, "natural", 4, 1).ids) != set(chosen.ids)
    backwards = dataclasses.replace(dataset, natural=Partition.from_lists(lists[::-1], ids=natural.ids[::-1]))
    assert data.make_partition(backwards, "natural", 4, 0).ids.tolist() == chosen.ids.tolist()  # whatever their order
    assert "clients            4 of 10 clients\n" in partition_binary.describe(chosen)
    assert "clients            10\n" in partition_binary.describe(data.make_partition(dataset, None, None, 0))
    refused("10 natural clients; set --num_clients", data.make_partition, dataset, "natural", 11, 0)
