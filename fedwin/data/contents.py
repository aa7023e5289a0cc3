"""Content of a loaded data set: whether it has all examples of the published one, and its checksum."""

import hashlib
import json

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, FullSize, Partition
from fedwin.data.example_source import feature_digest
from fedwin.registry.choices import Choice


def full_size(choice: str | Choice) -> FullSize:
    """Returns the size of the complete data set of a choice, such as `pacs:test_fraction=0.2`.

    Example:
      >>> full_size("mnist_writers")
      FullSize(train=60000, test=10000, clients=539)
    """
    choice = DATASETS.check(choice)
    full = DATASETS.entries[choice.name].facts["full"]
    return full(DATASETS.options(choice.name) | choice.params) if callable(full) else full


def describe_subset(choice: str | Choice, dataset: Dataset) -> str:
    """Describes how a loaded data set differs in size from the complete one, or ''."""
    full = full_size(choice)
    clients = None if dataset.natural is None else dataset.natural.num_clients
    sizes = (len(dataset.train["y"]), len(dataset.test["y"]), clients)
    names = ("training examples", "test examples", "clients")
    return " and ".join(
        f"{0 if actual is None else actual:,} of {expected:,} {name}"
        for name, actual, expected in zip(names, sizes, full, strict=True)
        if expected is not None and actual != expected
    )


def checksum(dataset: Dataset) -> str:
    """Computes a hash of all that decides numbers: examples, normalization, classes, task and the data set's clients.

    The original files, and a cache that was packed from them, have the same checksum, 32 hexadecimal digits. Features
    larger than 2 GiB are hashed by 4,096 of their rows.
    """
    numbers = lambda values: None if values is None else np.asarray(values, float).reshape(-1).tolist()
    accuracies = {name: [list(left), list(never)] for name, (left, never) in dataset.accuracies.items()}
    fields = [dataset.task, int(dataset.num_classes), numbers(dataset.mean), numbers(dataset.std), accuracies]
    digest = hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=16)
    for split in (dataset.train, dataset.test):
        for name in sorted(split):
            digest.update(name.encode() + feature_digest(split[name], whole_bytes=2 << 30, num_rows=4096))
    for part in (dataset.natural, dataset.test_natural):
        digest.update(_partition_digest(part))
    return digest.hexdigest()


def _partition_digest(partition: Partition | None) -> bytes:
    """Returns a hash of which examples, and which domain, each client has."""
    digest = hashlib.blake2b(digest_size=16)
    if partition is not None:
        domain = np.zeros(0, np.int32) if partition.domain is None else partition.domain
        for array, dtype in ((partition.order, np.int32), (partition.offset, np.int64), (domain, np.int32)):
            digest.update(len(array).to_bytes(8, "little") + np.ascontiguousarray(array, dtype).tobytes())
    return digest.digest()
