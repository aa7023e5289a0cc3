"""Real data sets; needs FEDWIN_DATA_DIR, a folder with their original files."""

import os
import pathlib

import numpy as np
import pytest

from fedwin import data
from fedwin.data.sources import shakespeare_texts
from fedwin.data.sources.cifar_names import PARENT

ROOT = os.environ.get("FEDWIN_DATA_DIR")
pytestmark = [
    pytest.mark.skipif(not ROOT, reason="FEDWIN_DATA_DIR does not name a folder with the original data sets"),
    pytest.mark.filterwarnings("ignore:.*unverified"),
]


def need(*names) -> pathlib.Path:
    path = pathlib.Path(ROOT, *names)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def counts(dataset, key="y"):
    """Numbers of training and test examples of each class, or domain."""
    return tuple(np.bincount(side[key]).tolist() for side in (dataset.train, dataset.test))


@pytest.fixture(scope="module")
def cifar10():
    need("cifar10")
    return data.load("cifar10", ROOT)


def test_cifar10_in_full(cifar10):
    assert cifar10.verified
    assert counts(cifar10) == ([5000] * 10, [1000] * 10)
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
    assert sorted(part.sizes)[:2] == [499, 500] and part.report["left_out"] == 1
    assert 10100 not in part.order
    assert abs((part.report["histogram"] > 0).sum(1).mean() - classes) < 0.006
    ours = data.make_partition(cifar10, f"dirichlet:alpha={float(alpha)}", 100, 0)
    assert 0.65 < (ours.report["histogram"] > 0).sum(1).mean() / classes < 1.35


def test_cifar100_subset():
    need("cifar100-subset")
    dataset = data.load("cifar100", ROOT)
    assert counts(dataset) == ([60] * 100, [10] * 100)
    np.testing.assert_array_equal(PARENT[dataset.train["y"]], dataset.train["coarse"])
    names = (need("cifar100-subset", "fine_label_names.txt")).read_text().split()
    assert names == list(dataset.class_names)
    part = data.make_partition(dataset, "pachinko", 60, 0)
    assert (part.sizes == 100).all()
    assert data.load("cifar100:label=coarse", need("cifar100-subset")).num_classes == 20


def test_mnist_and_its_writers():
    need("mnist")
    dataset = data.load("mnist_writers", ROOT)
    assert dataset.verified
    assert dataset.train["y"][:5].tolist() == [5, 0, 4, 1, 9] and dataset.test["y"][:3].tolist() == [7, 2, 1]
    assert np.bincount(dataset.train["y"]).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    sizes = dataset.natural.sizes
    assert len(sizes) == 539 and (sizes.min(), sizes.max(), np.median(sizes)) == (19, 131, 116)
    assert dataset.test_natural.num_clients == 297
    assert not set(dataset.natural.ids) & set(dataset.test_natural.ids)
    assert abs((dataset.train["x"] / 255).mean() - 0.1307) < 1e-3


def test_leaf_json_holds_the_same_digits_as_the_idx_files():
    folder = need("mnist", "leaf-by-writer")
    leaf = data.load("femnist_digits:form=leaf,paper=0", folder)
    writers = data.load("mnist_writers", ROOT)
    assert leaf.natural.num_clients == 20 and (len(leaf.train["y"]), len(leaf.test["y"])) == (1710, 435)
    k = int(np.flatnonzero(writers.natural.ids == leaf.natural.ids[3])[0])
    own = writers.natural.client(k)[: leaf.natural.sizes[3]]
    np.testing.assert_array_equal(leaf.train["x"][leaf.natural.client(3)], writers.train["x"][own])
    np.testing.assert_array_equal(leaf.train["y"][leaf.natural.client(3)], writers.train["y"][own])


def test_fashion_mnist_and_usps():
    need("fashion-mnist")
    fashion = data.load("fmnist", ROOT)
    assert counts(fashion) == ([6000] * 10, [1000] * 10)
    assert len(np.unique(fashion.test["x"].reshape(10_000, -1), axis=0)) == 10_000
    need("usps")
    usps = data.load("usps", ROOT)
    assert np.bincount(usps.train["y"]).tolist() == [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]
    assert len(usps.test["y"]) == 2007 and usps.train["x"].min() == 0 and usps.train["x"].max() == 255


def test_two_domains_of_digit_five():
    need("usps")
    dataset = data.load("digit5:domains=mnist+usps", ROOT)
    assert counts(dataset, "domain") == ([7438, 7438], [14_000, 1860])
    part = data.make_partition(dataset, "domain:inner=yurochkin:alpha=0.5", 40, 0)
    assert part.report["left_out"] == 0 and part.sizes.min() >= 10


def test_pacs_subset():
    need("pacs-subset")
    dataset = data.load("pacs", ROOT)
    labels = np.concatenate([dataset.train["y"], dataset.test["y"]])
    assert np.bincount(labels).tolist() == [12] * 7 and np.bincount(dataset.test["domain"]).tolist() == [2] * 4
    assert dataset.train["x"][3].shape == (224, 224, 3) and dataset.train["x"][3].std() > 10


@pytest.mark.filterwarnings("ignore:.*characters outside")
def test_shakespeare_from_leaf_and_from_plays():
    need("shakespeare")
    dataset = data.load("shakespeare_leaf", ROOT)
    assert dataset.train["x"].shape == (200_000, 80) and dataset.test["x"].shape == (40_000, 80)
    assert dataset.natural.report["unknown_characters"] == 1
    texts = shakespeare_texts.texts_of_leaf(shakespeare_texts.leaf.find(ROOT, "shakespeare*"))
    assert len(texts) == 836
    parsed = shakespeare_texts.texts_of_plays(need("shakespeare", "plays.tar.xz"))
    hamlet = texts["HAMLET_HAMLET"]
    assert parsed["HAMLET_HAMLET"].startswith(hamlet[0][:-1][:400])
    assert len(set(parsed) & set(texts)) > 800
    whole = data.load("shakespeare_plays", ROOT)
    assert whole.natural.num_clients == 37 and whole.train["x"].shape == (55_752, 80)
    assert whole.test["x"].shape == (6_210, 80)
