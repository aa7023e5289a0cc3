"""CIFAR-100 in the released Pachinko allocation, Reddi et al. 2021, https://arxiv.org/abs/2003.00295.

500 training clients of 100 images and 100 test clients of 100 images; test clients are not training clients.
"""

import numpy as np

from fedwin.data import cifar_names, clients, fedjax_data, files, tff
from fedwin.data.catalog import DATASETS
from fedwin.data.cifar import normalisation
from fedwin.data.dataset import Dataset
from fedwin.errors import UserError

SOURCE = "https://storage.googleapis.com/tff-datasets-public/cifar100.sqlite.lzma"


def one(features: dict) -> dict:
    """Turns one parsed TFF example (pixels as int64 in HWC order) into x, y and coarse."""
    pixels = np.asarray(features["image"])
    if pixels.size != 3072 or pixels.min() < 0 or pixels.max() > 255:
        raise ValueError(f"'image' is not 3,072 numbers in 0..255 but {pixels.size}")
    label, coarse = (np.int32(features[key][0]) for key in ("label", "coarse_label"))
    return {"x": pixels.astype(np.uint8).reshape(32, 32, 3), "y": label, "coarse": coarse}


def many(features: dict) -> dict:
    """Turns a client's arrays (HDF5 or FedJAX SQLite, whose names differ) into x, y and coarse."""
    image = features["image"] if "image" in features else features["x"]
    label = features["label"] if "label" in features else features["y"]
    result = {
        "x": np.asarray(image).astype(np.uint8).reshape(-1, 32, 32, 3),
        "y": np.asarray(label).astype(np.int32).reshape(-1),
    }
    if "coarse_label" in features:
        result["coarse"] = np.asarray(features["coarse_label"]).astype(np.int32).reshape(-1)
    return result


def from_fedjax(path):
    """Yields the clients of a FedJAX file."""
    for client, features in fedjax_data.read_sqlite(path):
        try:
            yield client, many(features)
        except (KeyError, ValueError) as error:
            raise UserError(f"{path}, client '{clients.text(client)}': not images with labels ({error}).")


@DATASETS.register("cifar100_pam")
def cifar100_pam(data_dir, *, constants: str = "cifar100") -> Dataset:
    """CIFAR-100 with its 500 Pachinko clients: x uint8 [N, 32, 32, 3], y in 0..99, 'coarse' in 0..19.

    Reads TFF's `cifar100.sqlite` (.lzma), FedJAX's `federated_cifar100_{train,test}.sqlite` or TFF's
    `fed_cifar100_{train,test}.h5`. Without any of them, `--dataset=cifar100 --partition=pachinko` draws such clients.

    Args:
      constants: normalisation, 'cifar100', 'cifar10' or 'ima'.
    """
    mean, std = normalisation(constants)

    def build(streams, where):
        (train, natural), (test, test_natural) = (clients.flatten(*side) for side in zip(streams, where))
        return Dataset(
            "cifar100_pam",
            train,
            test,
            100,
            mean=mean,
            std=std,
            natural=natural,
            class_names=cifar_names.FINE,
            verified=False,
            test_natural=test_natural,
        )

    for folder in files.folders(data_dir, "cifar100*", "cifar-100*", "fed_cifar100*"):
        if not folder.is_dir():
            continue
        if found := files.locate(folder, "cifar100.sqlite"):
            with tff.unpacked(found) as path:
                return build([tff.read_sqlite(path, side, one) for side in ("train", "test")], [f"{found}"] * 2)
        pair = [folder / f"federated_cifar100_{side}.sqlite" for side in ("train", "test")]
        if all(path.is_file() for path in pair):
            return build([from_fedjax(path) for path in pair], pair)
        pair = [folder / f"fed_cifar100_{side}.h5" for side in ("train", "test")]
        if all(path.is_file() for path in pair):
            return build([tff.read_hdf5(path, many) for path in pair], pair)
    raise files.missing(
        "cifar100_pam", data_dir, "cifar100.sqlite(.lzma), federated_cifar100_*.sqlite or fed_cifar100_*.h5", SOURCE
    )
