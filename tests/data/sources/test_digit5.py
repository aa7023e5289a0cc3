"""Digit Five, from FedBN's archive and from the original data sets."""

import pickle

import numpy as np
import pytest
import scipy.io
from PIL import Image

from fedwin import data
from fedwin.data.sources import digit5, digit5_files
from tests.data.files import picture, refused, taken, write_fedbn, write_idx, write_usps, zipped


def test_digit_five_from_fedbns_archive(tmp_path):
    write_fedbn(tmp_path)
    gray = pickle.loads((tmp_path / "digit_dataset/MNIST/partitions/train_part0.pkl").read_bytes())
    zipped(tmp_path / "digit_dataset.zip", taken(tmp_path))
    dataset = data.load("digit5", tmp_path)
    assert dataset.train["x"].shape == (200, 28, 28, 3) and dataset.train["x"].dtype == np.uint8
    counts = [np.bincount(side["domain"]).tolist() for side in (dataset.train, dataset.test)]
    assert counts == [[40] * 5, [3] * 5]
    np.testing.assert_array_equal(dataset.train["x"][:4], np.repeat(gray[0], 3, -1))
    assert len(data.load("digit5:parts=2", tmp_path).train["y"]) == 40
    part = data.make_partition(dataset, "domain:inner=shards", 10, 0)
    assert np.bincount(part.domain).tolist() == [2] * 5


def test_digit_five_pickles_are_checked(tmp_path):
    write_fedbn(tmp_path)
    path = tmp_path / "digit_dataset/SVHN/partitions/train_part3.pkl"
    pair = (np.full((2, 8, 8, 1), np.nan), np.array([1, 2]))
    for content, message in ((print, ".*print"), (pair, ": pixels are NaN"), ([1, 2, 3], ": not a pair of images")):
        path.write_bytes(pickle.dumps(content))
        refused(f"train_part3.pkl{message}", data.load, "digit5", tmp_path)
    path.unlink()
    refused("train_part3.pkl is missing", data.load, "digit5", tmp_path)
    refused("domains=mnist.cifar", data.load, "digit5:domains=mnist+cifar", tmp_path)


def test_digit_five_from_the_original_files(tmp_path):
    rng = np.random.default_rng(0)
    image = lambda n, *shape: rng.integers(0, 256, (n, *shape), np.uint8)
    labels = (np.arange(25) % 10).astype(np.uint8)
    for name in ("svhn", "synth", "mnist_m"):
        (tmp_path / name).mkdir()
    write_usps(tmp_path / "usps", rng.integers(-1000, 1001, (25, 16, 16)).astype(np.int16), labels)
    write_idx(tmp_path / "mnist", n=(25, 25), suffix="")
    for side in ("train", "test"):
        content = {"X": image(25, 32, 32, 3).transpose(1, 2, 3, 0), "y": np.where(labels == 0, 10, labels)[:, None]}
        scipy.io.savemat(tmp_path / "svhn" / f"{side}_32x32.mat", content)
        scipy.io.savemat(tmp_path / "synth" / f"synth_{side}_32x32.mat", content, do_compression=True)
        folder = tmp_path / "mnist_m" / f"mnist_m_{side}"
        folder.mkdir()
        for i in range(25):
            (folder / f"{i:08d}.png").write_bytes(picture((i, 0, 0), (32, 32), "PNG"))
        lines = [f"{i:08d}.png {i % 10}" for i in range(25)]
        (tmp_path / "mnist_m" / f"mnist_m_{side}_labels.txt").write_text("\n".join(lines))
    dataset = data.load("digit5:per_domain=38", tmp_path)
    counts = [np.bincount(side["domain"]).tolist() for side in (dataset.train, dataset.test)]
    assert counts == [[38] * 5, [10] * 5]
    assert (np.bincount(dataset.test["y"]) == 5).all()  # stratified: one of each class and domain
    (tmp_path / "mnist_m" / "mnist_m_train" / "00000003.png").unlink()
    refused("mnist_m_train_labels.txt, line 4: image .*00000003.png is missing", data.load, "digit5", tmp_path)
    refused("found no mnist", data.load, "digit5", tmp_path / "usps")


@pytest.mark.parametrize("n, held", [(70_000, 14_000), (488_953, 97_791)])
def test_digit_five_splits_have_the_published_sizes(n, held):
    labels = np.random.default_rng(0).integers(0, 10, n)
    train, test = digit5.stratified_split(labels, 7438, np.random.default_rng(1))
    assert len(test) == held and len(train) == 7438 and not set(test) & set(train)
    assert np.abs(np.bincount(labels[test]) - 0.2 * np.bincount(labels)).max() <= 1


@pytest.mark.parametrize(
    "images, labels, message",
    [
        (np.zeros((2, 5)), [0, 1], "is not a set of gray or color images"),
        (np.zeros((2, 8, 8)), [0], "1 labels for 2 images"),
        (np.zeros((2, 8, 8), object), [0, 1], "pixels are object, not numbers"),
    ],
)
def test_digit_five_pairs(images, labels, message):
    refused(f"part.pkl: .*{message}", digit5_files.check_pair, images, labels, "part.pkl")


def test_layouts_are_unified_and_some_write_zero_as_ten(tmp_path):
    planar = np.zeros((2, 3, 28, 28), np.uint8)
    planar[:, 1] = 7
    assert digit5_files.check_pair(planar, [0, 9], "p")[0][0, 0, 0].tolist() == [0, 7, 0]
    for domain in ("svhn", "synthdigits"):
        unit = digit5_files.check_pair(np.full((1, 28, 28, 1), 0.5), [10], "p", domain)
        assert unit[0][0, 3, 3].tolist() == [128] * 3 and unit[1].tolist() == [0]
    folder = tmp_path / "mnist_m" / "mnist_m_train"
    folder.mkdir(parents=True)
    Image.fromarray(np.zeros((28, 28, 3), np.uint8)).save(folder / "0.png")
    Image.fromarray(np.zeros((27, 28, 3), np.uint8)).save(folder / "1.png")
    path = tmp_path / "mnist_m" / "mnist_m_train_labels.txt"
    for text, message in (("0.png 10", "label 10"), ("0.png \u00b2", "line 1"), ("0.png 1\n1.png 2", "27")):
        path.write_text(text)
        refused(f"mnist_m_train.*{message}", data.load, "digit5:domains=mnist_m", tmp_path)
