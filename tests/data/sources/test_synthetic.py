"""Synthetic stand-ins: like their originals, determined by the seed, and learnable."""

import numpy as np
import pytest

from fedwin import data
from tests.data.files import (
    characters,
    leaf_windows,
    text_of,
    write_cifar100,
    write_fedbn,
    write_femnist,
    write_idx,
    write_landmarks,
    write_leaf,
    write_pacs,
    write_usps,
    write_writers,
)
from tests.data.sources import test_cifar, test_femnist, test_shakespeare, test_stackoverflow
from tests.data.sources.test_cifar100_pam import write_tff_clients


def write_roles(folder):
    windows = leaf_windows(text_of(1, 900), 1)
    for side, part in (("train", slice(0, 600)), ("test", slice(679, None))):
        write_leaf(folder / side, {"A": tuple(pairs[part] for pairs in windows)})


def write_blank_usps(folder):
    write_usps(folder, np.zeros((10, 16, 16), np.int16), np.arange(10, dtype=np.uint8))


# name -> (writes the original's files, its options, those of the stand-in)
ORIGINALS = {
    "cifar10": (test_cifar.write_cifar10, "", "n=300,tests=100"),
    "cifar100": (lambda folder: write_cifar100(folder, 5), "", "n=200,tests=100"),
    "cifar100_pam": (write_tff_clients, "", "clients=3,test_clients=2,per_client=40"),
    "mnist": (write_idx, "", "n=20,tests=10"),
    "fmnist": (write_idx, "", "n=20,tests=10"),
    "emnist": (lambda folder: write_idx(folder, "emnist-byclass-", "test"), "", "n=70,tests=70"),
    "usps": (write_blank_usps, "", "n=20,tests=10"),
    "mnist_writers": (write_writers, "", "clients=20,n=100"),
    "femnist": (lambda folder: write_femnist(folder, "fedjax", characters(), characters(seed=1)), "", "clients=9,n=90"),
    "femnist_digits": (test_femnist.write_digits, "", "clients=20,n=300"),
    "shakespeare": (test_shakespeare.write_snippets, "", "clients=5,rows=20"),
    "shakespeare_leaf": (write_roles, "clients=1,train=50,test=5", "clients=3,train=50,test=5"),
    "shakespeare_plays": (test_shakespeare.write_plays, "clients=2", "clients=5,rows=20"),
    "stackoverflow": (test_stackoverflow.write, "users=2,tests=2,vocabulary_size=2", "users=9,n=90,vocabulary_size=2"),
    "landmarks": (write_landmarks, "size=16,resize=20", "clients=9,n=40,size=16"),
    "inaturalist": (write_landmarks, "size=16,resize=20", "clients=9,n=40,size=16"),
    "digit5": (write_fedbn, "", "per_domain=50,tests=20"),
    "pacs": (write_pacs, "size=16,resize=20", "per_domain=7,tests=7,size=16"),
}
OTHERS = {"california_like", "diabetes", "digits", "fedjax", "hf", "image_folder", "npz", "tfds"}


def test_every_stand_in_has_its_original_here():
    stand_ins = {f"{name}_synthetic" for name in ORIGINALS}
    assert stand_ins == {name for name in data.DATASETS if name.endswith("_synthetic")}
    assert set(data.DATASETS) == stand_ins | set(ORIGINALS) | OTHERS


@pytest.mark.parametrize("name", ORIGINALS)
def test_a_stand_in_is_what_its_original_is(tmp_path, name):
    write, options, small = ORIGINALS[name]
    write(tmp_path)
    original = data.load(f"{name}:{options}".rstrip(":"), tmp_path)
    stand_in, again, other = (data.load(f"{name}_synthetic:{small},seed={seed}") for seed in (0, 0, 1))
    kinds = lambda features: {key: (value.dtype, tuple(value.shape[1:])) for key, value in features.items()}
    for split in ("train", "test"):
        assert kinds(getattr(stand_in, split)) == kinds(getattr(original, split))
    for field in ("num_classes", "task", "mean", "std", "class_names", "domain_names", "accuracies"):
        assert getattr(stand_in, field) == getattr(original, field), field
    for field in ("natural", "test_natural"):
        own, theirs = getattr(stand_in, field), getattr(original, field)
        assert (own is None) == (theirs is None), field
        if own is not None:
            assert (own.domain is None) == (theirs.domain is None) and (own.ids is None) == (theirs.ids is None)
    x, same, changed = (np.asarray(each.train["x"]).tobytes() for each in (stand_in, again, other))
    assert x == same != changed and stand_in.train["y"].tobytes() == again.train["y"].tobytes()
    if stand_in.natural is not None:
        part = data.make_partition(stand_in, None, None, 0)
        assert part.report["left_out"] == 0 and part.sizes.min() >= 1
        if name not in ("cifar100_pam", "shakespeare_leaf"):
            assert part.sizes.min() < part.sizes.max()
        if name in ("mnist_writers", "cifar100_pam"):
            assert not set(stand_in.natural.ids) & set(stand_in.test_natural.ids)
    if stand_in.domain_names and "domain" in stand_in.train:
        assert set(stand_in.train["domain"]) == set(range(len(stand_in.domain_names)))


@pytest.mark.parametrize("name", ["cifar10", "femnist_digits", "digit5"])
def test_the_classes_are_distinguishable(name):
    dataset = data.load(f"{name}_synthetic:{ORIGINALS[name][2]}")
    domains = [side.get("domain", np.zeros(len(side["y"]), int)) for side in (dataset.train, dataset.test)]
    right = []
    for d in np.unique(domains[0]):
        (x, y), (tx, ty) = (
            (side["x"][domain == d], side["y"][domain == d])
            for side, domain in zip((dataset.train, dataset.test), domains)
        )
        centers = np.stack([x[y == c].astype(float).mean(0) for c in range(10)]).reshape(10, -1)
        distance = ((tx.reshape(len(tx), 1, -1) - centers) ** 2).sum(-1)
        right.append((distance.argmin(1) == ty).mean())
    assert np.mean(right) > 0.9


def test_stackoverflow_rows_are_well_formed():
    features = data.load("stackoverflow_synthetic:users=20,n=200").train
    assert (features["x"][:, 0] == 1).all()
    np.testing.assert_array_equal(features["x"][:, 1:], np.where(features["y"][:, :-1] == 2, 0, features["y"][:, :-1]))
    assert set(np.unique((features["y"] == 2).sum(1))) == {0, 1}


def test_an_image_may_be_larger_than_the_bank_of_noise(monkeypatch):
    monkeypatch.setattr("fedwin.data.sources.synthetic_images.BANK", 1)
    assert len(data.load("digit5_synthetic:per_domain=1,tests=1").train["y"]) == 5
