"""Real data sets; needs FEDWIN_DATA_DIR, a folder with their original files."""

import os
import pathlib

import numpy as np
import pytest

from fedwin import data
from fedwin.data.sources import shakespeare_texts

ROOT = os.environ.get("FEDWIN_DATA_DIR")
pytestmark = [
    pytest.mark.skipif(not ROOT, reason="FEDWIN_DATA_DIR does not name a folder with the original data sets"),
    pytest.mark.filterwarnings("ignore:.*unverified", "ignore:.*characters outside"),
]


def need(*names) -> pathlib.Path:
    path = pathlib.Path(ROOT, *names)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


@pytest.fixture(scope="module")
def cifar10():
    need("cifar10")
    return data.load("cifar10", ROOT)


def test_cifar10_in_full(cifar10):
    assert cifar10.verified
    # The first training images are a frog, a truck and a truck; the first test images a cat, a ship and a ship.
    assert cifar10.train["y"][:3].tolist() == [6, 9, 9] and cifar10.test["y"][:3].tolist() == [3, 8, 8]
    assert cifar10.train["x"][0, 0, 0].tolist() == [59, 62, 63]
    scaled = cifar10.train["x"][::5].reshape(-1, 3) / 255
    np.testing.assert_allclose(scaled.mean(0), [0.4914, 0.4822, 0.4465], atol=0.005)
    np.testing.assert_allclose(scaled.std(0), [0.2470, 0.2435, 0.2616], atol=0.005)


@pytest.mark.parametrize("alpha, classes", [("0.00", 1.0), ("0.05", 1.32), ("0.50", 3.57)])
def test_published_splits_of_cifar10(cifar10, alpha, classes):
    path = need("cifar10", "partitions", f"federated_train_alpha_{alpha}.json.gz")
    part = data.make_partition(cifar10, f"csv:path={path}", 100, 0)
    assert sorted(part.sizes)[:2] == [499, 500] and part.report["left_out"] == 1 and 10100 not in part.order
    assert abs((part.report["histogram"] > 0).sum(1).mean() - classes) < 0.006
    ours = data.make_partition(cifar10, f"dirichlet:alpha={float(alpha)}", 100, 0)
    assert 0.65 < (ours.report["histogram"] > 0).sum(1).mean() / classes < 1.35


MNIST = (
    [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
)
# Data set -> (folder, feature, number of training and of test examples of each of its values).
COUNTS = {
    "cifar10": ("cifar10", "y", ([5000] * 10, [1000] * 10)),
    "cifar100": ("cifar100-subset", "y", ([60] * 100, [10] * 100)),
    "mnist": ("mnist", "y", MNIST),
    "fmnist": ("fashion-mnist", "y", ([6000] * 10, [1000] * 10)),
    "usps": ("usps", "y", ([1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644], None)),
    "digit5:domains=mnist+usps": ("usps", "domain", ([7438, 7438], [14_000, 1860])),
    "pacs": ("pacs-subset", "domain", ([19] * 4, [2] * 4)),
}


@pytest.mark.parametrize("choice", COUNTS)
def test_numbers_of_examples(choice):
    folder, key, expected = COUNTS[choice]
    need(folder)
    dataset = data.load(choice, ROOT)
    for side, counts in zip((dataset.train, dataset.test), expected):
        assert counts is None or np.bincount(side[key]).tolist() == counts
    assert np.asarray(dataset.train["x"][:1]).std() > 1


def test_writers_of_mnist_and_the_same_digits_in_leaf_json():
    folder = need("mnist", "leaf-by-writer")
    writers, leaf = data.load("mnist_writers", ROOT), data.load("femnist_digits:form=leaf,paper=0", folder)
    sizes = writers.natural.sizes
    assert writers.verified and len(sizes) == 539 and writers.test_natural.num_clients == 297
    assert (sizes.min(), sizes.max(), np.median(sizes)) == (19, 131, 116)
    assert leaf.natural.num_clients == 20 and (len(leaf.train["y"]), len(leaf.test["y"])) == (1710, 435)
    k = int(np.flatnonzero(writers.natural.ids == leaf.natural.ids[3])[0])
    own = writers.natural.client(k)[: leaf.natural.sizes[3]]
    for key in ("x", "y"):
        np.testing.assert_array_equal(leaf.train[key][leaf.natural.client(3)], writers.train[key][own])


def test_shakespeare_from_leaf_and_from_plays():
    need("shakespeare")
    dataset = data.load("shakespeare_leaf", ROOT)
    assert dataset.train["x"].shape == (200_000, 80) and dataset.test["x"].shape == (40_000, 80)
    assert dataset.natural.report["unknown_characters"] == 1
    texts = shakespeare_texts.texts_of_leaf(shakespeare_texts.leaf.find(ROOT, "shakespeare*"))
    parsed = shakespeare_texts.texts_of_plays(need("shakespeare", "plays.tar.xz"))
    assert len(texts) == 836 and len(set(parsed) & set(texts)) > 800
    assert parsed["HAMLET_HAMLET"].startswith(texts["HAMLET_HAMLET"][0][:-1][:400])
    whole = data.load("shakespeare_plays", ROOT)
    assert whole.natural.num_clients == 37
    assert whole.train["x"].shape == (55_752, 80) and whole.test["x"].shape == (6_210, 80)
