"""CIFAR-100 with the released Pachinko clients."""

import numpy as np
import pytest

from fedwin import data
from tests.data.federation_files import pam_clients, write_cifar100
from tests.data.files import write_fedjax_sqlite, write_tff_sqlite

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")


@pytest.mark.parametrize("form", ["tff", "fedjax", "hdf5"])
def test_cifar100_pam_keeps_its_clients(tmp_path, form):
    held = {"train": pam_clients(4, 0), "test": pam_clients(2, 1)}
    if form == "tff":
        write_tff_sqlite(tmp_path / "cifar100.sqlite.lzma", held, compress=True)
    for side, content in held.items():
        stacked = {
            client: {key: np.stack([row[key] for row in rows]) for key in rows[0]} for client, rows in content.items()
        }
        if form == "fedjax":
            named = {
                client.encode(): {
                    "image": f["image"].astype(np.uint8),
                    "label": f["label"].reshape(-1),
                    "coarse_label": f["coarse_label"].reshape(-1),
                }
                for client, f in stacked.items()
            }
            write_fedjax_sqlite(tmp_path / f"federated_cifar100_{side}.sqlite", named)
        elif form == "hdf5":
            h5py = pytest.importorskip("h5py")
            with h5py.File(tmp_path / f"fed_cifar100_{side}.h5", "w") as file:
                for client, features in stacked.items():
                    for key, value in features.items():
                        file[f"examples/{client}/{key}"] = value
    dataset = data.load("cifar100_pam", tmp_path)
    assert dataset.natural.num_clients == 4 and dataset.test_natural.num_clients == 2
    np.testing.assert_array_equal(
        dataset.train["x"][2:4], np.stack([row["image"] for row in held["train"]["client_1"]])
    )
    assert dataset.train["y"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and dataset.train["coarse"].dtype == np.int32


def test_cifar100_pam_draws_its_clients_where_the_released_file_is_missing(tmp_path):
    write_cifar100(tmp_path, 50)
    with pytest.warns(UserWarning, match="no file with the released clients; 500 . 100 are drawn with seed 0"):
        dataset = data.load("cifar100_pam", tmp_path)
    whole = data.load("cifar100", tmp_path)
    np.testing.assert_array_equal(dataset.train["x"], whole.train["x"])
    for own, examples, clients in ((dataset.natural, whole.train, 500), (dataset.test_natural, whole.test, 100)):
        size = len(examples["y"]) // clients
        assert own.num_clients == clients and (own.sizes == size).all() and len(set(own.ids)) == clients
        assert sorted(own.order) == list(range(len(examples["y"])))
        coarse = [len(np.unique(examples["coarse"][own.client(k)])) for k in range(clients)]
        assert np.mean(coarse) < 4.5  # far from the 8 of random hands of ten
    with pytest.warns(UserWarning, match="drawn"):
        again, other = (data.load(f"cifar100_pam:seed={seed}", tmp_path) for seed in (0, 1))
    assert again.natural.order.tobytes() == dataset.natural.order.tobytes() != other.natural.order.tobytes()
    assert again.test_natural.order.tobytes() == dataset.test_natural.order.tobytes()
    # The sides are drawn independently: their first clients do not share their coarse labels.
    shares = [
        np.bincount(features["coarse"][part.client(0)], minlength=20)
        for features, part in ((dataset.train, dataset.natural), (dataset.test, dataset.test_natural))
    ]
    assert shares[0].tolist() != shares[1].tolist()
    assert data.make_partition(dataset, None, None, 0).num_clients == 500
