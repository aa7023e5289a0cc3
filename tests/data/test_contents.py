"""Completeness and checksums of loaded data sets."""

import dataclasses

import numpy as np
import pytest

from fedwin import data
from fedwin.data.contents import full_size
from tests.data.files import write_cifar100, write_pacs


@pytest.mark.parametrize(
    "choice, full",
    [
        ("pacs:test_fraction=0.5", (4_996, 4_995)),
        ("digit5", (37_190, 147_509)),
        ("digit5:parts=1", (None, None)),
        ("inaturalist:users=geo_100", (None, None)),
        ("shakespeare_leaf", (200_000, 40_000)),
        ("cifar10_synthetic", (None, None)),
    ],
)
def test_full_sizes_follow_the_parameters(choice, full):
    assert full_size(choice)[:2] == full


def test_subsets_are_described(tmp_path):
    write_cifar100(tmp_path, 5)
    write_pacs(tmp_path)
    cifar100, pacs = data.load("cifar100", tmp_path), data.load("pacs:size=8,resize=8", tmp_path)
    assert data.describe_subset("cifar100", cifar100) == (
        "500 of 50,000 training examples and 100 of 10,000 test examples"
    )
    assert data.describe_subset("pacs", pacs) == "72 of 8,994 training examples and 8 of 997 test examples"
    assert data.describe_subset("shakespeare", pacs) == "0 of 715 clients"
    assert data.describe_subset("npz", pacs) == data.describe_subset("digits", data.load("digits")) == ""


def test_a_checksum_covers_all_that_decides_numbers():
    dataset = data.load("pacs_synthetic:per_domain=5,tests=2,size=16")
    x = np.array(dataset.train["x"])
    x[3, 0, 0, 0] ^= 1
    own = data.Partition(np.arange(3, dtype=np.int32), np.array([0, 1, 3]))
    other = own._replace(domain=np.array([0, 1], np.int32))
    variants = [
        dataset,
        dataclasses.replace(dataset, train={**dataset.train, "x": x}),
        dataclasses.replace(dataset, test=dataset.train),
        dataclasses.replace(dataset, mean=(0.1, 0.2, 0.3)),
        dataclasses.replace(dataset, std=(0.1, 0.2, 0.3)),
        dataclasses.replace(dataset, num_classes=99),
        dataclasses.replace(dataset, natural=own),
        dataclasses.replace(dataset, natural=other),
        dataclasses.replace(dataset, test_natural=own),
    ]
    assert len({data.checksum(variant) for variant in variants}) == len(variants)
    renamed = dataclasses.replace(dataset, class_names=(), verified=False, mean=np.array(dataset.mean))
    assert data.checksum(renamed) == data.checksum(dataset) and len(data.checksum(dataset)) == 32
