"""CIFAR-100 with the released clients of Pachinko allocation, Reddi et al. 2021, https://arxiv.org/abs/2003.00295.

500 training clients and 100 other test clients of 100 images each.
"""

import dataclasses
import warnings

import numpy as np

from fedwin.data.dataset import DATASETS, PARTITIONS, Dataset, Examples, FullSize, Partition
from fedwin.data.formats import checksums, clients, files, sqlite, values
from fedwin.data.rng import generator
from fedwin.data.sources import cifar, cifar_names
from fedwin.registry.ranges import NonNegativeInt

SOURCE = "https://storage.googleapis.com/tff-datasets-public/cifar100.sqlite.lzma"
TRAIN_CLIENTS, TEST_CLIENTS = 500, 100
TFF = "cifar100.sqlite"
FEDJAX = ("federated_cifar100_train.sqlite", "federated_cifar100_test.sqlite")


def single_example(features: dict) -> Examples:
    """Converts one parsed TFF example (pixels as int64 in HWC order) to x, y and coarse, without the example axis."""
    examples = client_examples(features)
    if any(len(value) != 1 for value in examples.values()):
        raise ValueError("it is not one image with one label")
    return {key: value[0] for key, value in examples.items()}


def client_examples(features: dict) -> Examples:
    """Converts a client's arrays in FedJAX's SQLite to x, y and coarse."""
    result = {
        "x": values.pixels(features["image"], (32, 32, 3)),
        "y": values.labels(np.asarray(features["label"]).reshape(-1), 100),
    }
    if "coarse_label" in features:
        result["coarse"] = values.labels(np.asarray(features["coarse_label"]).reshape(-1), 20)
    return result


CHECKSUMS = {
    "cifar100.sqlite.lzma": ("sha256", "23d3916c9caa33395737ee560cc7cb77bbd05fc7b73647ee7be3a7e764172939"),
    "federated_cifar100_train.sqlite": ("sha256", "a4dc2f4ac4c9b6e7bd5234a1b568389384c00c903dcd34001c3cf50a4a81c713"),
    "federated_cifar100_test.sqlite": ("sha256", "74416c6ee8f41b1086f0e0e3c5289ac6df5a641100df48e8b583411a55de891f"),
}


@DATASETS.register(
    "cifar100_pam", full=FullSize(50_000, 10_000, TRAIN_CLIENTS), downloads=(SOURCE,), checksums=CHECKSUMS
)
def cifar100_pam(data_dir, *, constants: cifar.Constants = "cifar100", seed: NonNegativeInt = 0) -> Dataset:
    """CIFAR-100 with its 500 Pachinko clients: x uint8 [N, 32, 32, 3], y in 0..99, 'coarse' in 0..19.

    Reads TFF's `cifar100.sqlite` (.lzma) or FedJAX's `federated_cifar100_{train,test}.sqlite`. Without any of them,
    such clients are drawn from CIFAR-100, with a warning: 500 from the training images and 100 from the test images.
    """
    mean, std = cifar.CONSTANTS[constants]
    folders = files.folders(data_dir, "cifar100*", "cifar-100*", "fed_cifar100*")
    if tff := files.locate_all(folders, TFF):
        streams: list = [(sqlite.read_tff(tff[0], side, single_example), tff[0]) for side in ("train", "test")]
    else:
        paths = files.locate_all(folders, *FEDJAX) or []
        streams = [(sqlite.read(path, convert=client_examples), path) for path in paths]
    if streams:
        sides = [clients.flatten(*stream) for stream in streams]
        verified = checksums.verify_files("cifar100_pam", [path for _, path in streams])
    else:
        try:
            cifar100 = cifar.cifar100(data_dir)
        except files.Missing as error:
            wanted = f"{TFF}, {' and '.join(FEDJAX)} (also compressed) or CIFAR-100"
            raise files.missing("cifar100_pam", data_dir, wanted, SOURCE) from error
        sides, verified = draw_clients(cifar100, seed), cifar100.verified
    (train, natural), (test, part) = sides
    # Both sides are numbered from 0, but test clients are different ones: equal ids would stand for the same client.
    ids = np.asarray(part.ids)
    sides = [(train, natural), (test, part._replace(ids=np.char.add(np.array("test_", ids.dtype.kind), ids)))]
    fields = {"mean": mean, "std": std, "class_names": cifar_names.FINE, "verified": verified}
    return Dataset.of_clients("cifar100_pam", sides, 100, **fields)


def draw_clients(cifar100: Dataset, seed: int) -> list[tuple[Examples, Partition]]:
    """Draws (examples, clients) for training and test from CIFAR-100, independently of each other."""
    warnings.warn(
        f"cifar100_pam: no file with the released clients; {TRAIN_CLIENTS} + {TEST_CLIENTS} are drawn with seed "
        f"{seed} (fetch {SOURCE} for the released ones).",
        stacklevel=3,
    )
    test_seed = int(generator(seed, "cifar100_pam test side").integers(1 << 31))
    sides = []
    for examples, count, side_seed in ((cifar100.train, TRAIN_CLIENTS, seed), (cifar100.test, TEST_CLIENTS, test_seed)):
        part = PARTITIONS.build("pachinko", dataclasses.replace(cifar100, train=examples), count, side_seed)
        sides.append((examples, part._replace(ids=np.array([f"{k:03d}" for k in range(count)]))))
    return sides
