"""CIFAR-100 with the released Pachinko clients."""

import numpy as np
import pytest

from fedwin import data
from tests.data.files import refused, write_both, write_cifar100, write_tff


def clients(count, seed):
    """Two images of class k and coarse class k % 20 for client k."""
    rng = np.random.default_rng(seed)
    image = lambda: rng.integers(0, 256, (32, 32, 3)).astype(np.uint8)
    return {
        f"client_{k}": [{"image": image(), "label": k, "coarse_label": k % 20} for _ in range(2)] for k in range(count)
    }


def stacked(held):
    return {
        client.encode(): {key: np.stack([row[key] for row in rows]) for key in rows[0]} for client, rows in held.items()
    }


def write_tff_clients(folder, suffix=""):
    write_tff(folder / f"cifar100.sqlite{suffix}", {"train": clients(4, 0), "test": clients(2, 1)})


@pytest.mark.parametrize("form", ["tff", "fedjax"])
def test_cifar100_pam_keeps_its_clients(tmp_path, form):
    if form == "tff":
        write_tff_clients(tmp_path, ".lzma")
    else:
        write_both(tmp_path, "federated_cifar100", stacked(clients(4, 0)), stacked(clients(2, 1)))
    dataset = data.load("cifar100_pam", tmp_path)
    assert dataset.natural.num_clients == 4 and dataset.test_natural.num_clients == 2
    assert dataset.test_natural.ids.astype(str).tolist() == ["test_client_0", "test_client_1"]  # they are others
    images = np.stack([row["image"] for row in clients(4, 0)["client_1"]])
    np.testing.assert_array_equal(dataset.train["x"][2:4], images)
    assert dataset.train["y"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and dataset.train["coarse"].dtype == np.int32


@pytest.mark.parametrize(
    "features, message",
    [
        ({"image": np.full((1, 32, 32, 3), 300), "label": [1]}, "record 0: pixel 300 is not in 0..255"),
        ({"image": np.zeros((1, 32, 32, 3)), "label": [100]}, "record 0: label 100 is not in 0..99"),
        ({"image": np.zeros((1, 32, 32, 3))}, "there is no 'label'"),
    ],
)
def test_wrong_records_are_named(tmp_path, features, message):
    write_both(tmp_path, "federated_cifar100", {b"me": {key: np.asarray(value) for key, value in features.items()}})
    refused(f"federated_cifar100_train.sqlite, client 'me': {message}", data.load, "cifar100_pam", tmp_path)


def test_cifar100_pam_draws_its_clients_where_the_released_file_is_missing(tmp_path):
    write_cifar100(tmp_path, 50)
    with pytest.warns(UserWarning, match="no file with the released clients; 500 . 100 are drawn with seed 0"):
        dataset = data.load("cifar100_pam", tmp_path)
    whole = data.load("cifar100", tmp_path)
    np.testing.assert_array_equal(dataset.train["x"], whole.train["x"])
    for own, examples, count in ((dataset.natural, whole.train, 500), (dataset.test_natural, whole.test, 100)):
        size = len(examples["y"]) // count
        assert own.num_clients == count and (own is dataset.natural or not set(own.ids) & set(dataset.natural.ids))
        assert (own.sizes == size).all() and len(set(own.ids)) == count
        assert sorted(own.order) == list(range(len(examples["y"])))
        coarse = [len(np.unique(examples["coarse"][own.client(k)])) for k in range(count)]
        assert np.mean(coarse) < 4.5  # far from the 8 of random hands of ten
    with pytest.warns(UserWarning, match="drawn"):
        again, other = (data.load(f"cifar100_pam:seed={seed}", tmp_path) for seed in (0, 1))
    assert again.natural.order.tobytes() == dataset.natural.order.tobytes() != other.natural.order.tobytes()
    # The sides are drawn independently: their first clients do not share their coarse labels.
    shares = [
        np.bincount(features["coarse"][part.client(0)], minlength=20)
        for features, part in ((dataset.train, dataset.natural), (dataset.test, dataset.test_natural))
    ]
    assert shares[0].tolist() != shares[1].tolist()
    assert data.make_partition(dataset, None, None, 0).num_clients == 500
