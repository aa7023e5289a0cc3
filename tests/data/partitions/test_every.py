"""Properties of every partitioner."""

import dataclasses
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedwin import data
from fedwin.data.dataset import Partition
from tests.data.files import balanced, labeled, refused


def tree_set(labels) -> data.Dataset:
    return labeled(labels, 10, coarse=np.asarray(labels, np.int32) // 2)


# Label partitioners with options that suit a small data set -> CRC-32 of their split of 800 examples, seed 3.
EVERY = {
    "iid": "e490c8ee",
    "iid:equal=true": "e490c8ee",
    "shards:per_client=3": "156318cd",
    "dirichlet:alpha=0.3": "e5b9cc95",
    "dirichlet:alpha=0.3,order=rotate": "c45d1689",
    "dirichlet:alpha=0.02,prior=symmetric": "963ae25e",
    "dirichlet:alpha=0": "273309b1",
    "dirichlet:alpha=inf": "062f0f4d",
    "yurochkin:alpha=0.5,min_size=1": "0e259bc5",
    "quantity:classes=2": "570c5e3f",
    "power_law:least=1,classes=1": "3d443abd",
    "ghb_code:alpha=0.5,tries=3": "54e32f12",
    "ghb_code:alpha=0": "7404ae0a",
    "pachinko": "1f070e0b",
}


@pytest.mark.parametrize("text", EVERY)
@given(
    labels=st.lists(st.integers(0, 9), min_size=60, max_size=200), clients=st.integers(1, 9), seed=st.integers(0, 99)
)
def test_every_partition_deals_each_example_at_most_once(text, labels, clients, seed):
    labels = [*range(10), *labels] if text.startswith("power_law") else labels  # refuses a class that has none
    dataset = tree_set(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = data.make_partition(dataset, text, clients, seed, allow_empty=True)
    assert part.num_clients == clients
    assert len(np.unique(part.order)) == len(part.order)
    assert part.order.dtype == np.int32 and part.offset.dtype == np.int64
    assert part.order.size == 0 or (0 <= part.order.min() and part.order.max() < len(labels))
    assert part.sizes.sum() + part.report["left_out"] == len(labels)
    expected = [np.bincount(np.asarray(labels)[part.client(k)], minlength=10) for k in range(clients)]
    np.testing.assert_array_equal(part.report["histogram"], expected)
    np.testing.assert_array_equal(part.report["sizes"], part.sizes)


@pytest.mark.parametrize("text", EVERY)
def test_the_seed_alone_decides_the_split(text):
    dataset = tree_set(np.arange(800) % 10)
    first, second = (data.make_partition(dataset, text, 10, seed) for seed in (3, 4))
    assert f"{zlib.crc32(first.order.tobytes() + first.offset.tobytes()):08x}" == EVERY[text]
    assert first.order.tobytes() != second.order.tobytes()


def test_a_hundred_clients_unless_someone_else_knows(tmp_path):
    dataset = balanced(10, 400)
    for text in (None, "iid", "dirichlet:alpha=0.5", "shards"):
        assert data.make_partition(dataset, text, None, 0).num_clients == 100
    own = dataclasses.replace(dataset, natural=Partition.from_lists(np.arange(400).reshape(8, 50)))
    assert [data.make_partition(own, text, None, 0).num_clients for text in (None, "natural")] == [8, 8]
    assert data.make_partition(own, "iid", None, 0).num_clients == 100
    (tmp_path / "split.csv").write_text("user_id,image_id\n0,1\n1,0\n")
    assert data.make_partition(own, f"csv:path={tmp_path / 'split.csv'}", None, 0).num_clients == 2


@pytest.mark.parametrize(
    "text, clients, message",
    [
        ("dirichlet:alpha=1e308", 10, "give a number >= 0, or inf"),
        ("dirichlet:alpha=1", 101, "101 clients x 1 examples are more than the 100"),
        ("quantity:classes=11", 10, "classes=11, but 'labeled' has 10"),
        ("power_law:least=50", 10, "fewer clients"),
        ("pachinko", 10, "coarse and fine"),
        ("domain", 10, "has none"),
        ("natural", None, "no natural clients"),
        ("iid", 0, "num_clients"),
    ],
)
def test_bad_partitions_are_refused_in_one_line(text, clients, message):
    refused(message, data.make_partition, balanced(10, 100), text, clients, 0)


def test_empty_clients_are_refused_unless_they_are_allowed():
    arguments = labeled([0, 1, 1, 1], 2), "quantity:classes=1", 4, 0
    refused(r"has no examples .*; use fewer clients or a larger alpha\.$", data.make_partition, *arguments)
    assert data.make_partition(*arguments, allow_empty=True).sizes.min() == 0


def test_partitions_that_do_not_fit_the_data_set():
    domains = labeled(np.arange(20) % 10, 10, domain=np.arange(20, dtype=np.int32) % 2)
    refused("3 clients; give a multiple of the 2 domains", data.make_partition, domains, "domain", 3, 0)
    refused("does not split labels", data.make_partition, domains, "domain:inner=natural", 4, 0)
    refused("train, record 1: domain 1 is not in 0..0", data.check, dataclasses.replace(domains, domain_names=("a",)))
    broken = labeled([0, 1, 0], 2, coarse=np.array([0, 1, 1], np.int32))
    refused("belongs to two coarse labels", data.make_partition, broken, "pachinko", 1, 0)
    coarse = labeled(np.arange(40) % 2, 2, fine=np.arange(40, dtype=np.int32) % 4)
    assert data.make_partition(coarse, "pachinko", 4, 0).sizes.tolist() == [10] * 4
    assert (data.make_partition(balanced(10, 200), "yurochkin:alpha=inf", 10, 0).report["histogram"] == 2).all()


def test_a_partition_of_the_user_is_checked_and_gets_a_report():
    rows = {"good": [[0], [2, 1]], "twice": [[0, 1], [1]], "before": [[0], [-1]]}
    data.PARTITIONS.register("mine", lambda dataset, num_clients, seed, *, rows_of: Partition.from_lists(rows[rows_of]))
    dataset = labeled(np.arange(8) % 2, 2, domain=np.arange(8, dtype=np.int32) // 4)
    refused("mine:rows_of=good' has 2 clients, not 3; set", data.make_partition, dataset, "mine:rows_of=good", 3, 0)
    refused("assigns example 1 to more", data.make_partition, dataset, "mine:rows_of=twice", 2, 0)
    refused("example -1 is not in 0..5", data.make_partition, dataset, "mine:rows_of=before", 2, 0, imbalance=1.5)
    part = data.make_partition(dataset, "mine:rows_of=good", None, 0)
    assert part.report["partition"] == "mine" and part.report["histogram"].tolist() == [[1, 0], [1, 1]]
    assert data.make_partition(dataset, "domain:inner=mine:rows_of=good", 4, 0).order.size == 6


def test_sequences_have_no_label_to_split_by():
    y = np.ones((6, 3), np.int32)
    dataset = data.Dataset("text", {"x": y, "y": y}, {"x": y, "y": y}, 5, task="sequence")
    refused("one label per example", data.make_partition, dataset, "shards", 2, 0)
    assert data.make_partition(dataset, "iid", 2, 0).report["histogram"] is None
