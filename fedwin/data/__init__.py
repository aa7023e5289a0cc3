"""Data sets and how they are dealt to clients.

`load('cifar10', data_dir)` reads a data set from the files that people have; `deal(dataset, 'dirichlet:alpha=0.5', 100,
seed)` says which client holds which examples.
"""

from fedwin.data import cache, partitions
from fedwin.data.check import check
from fedwin.data.dataset import Dataset, Examples, Partition
from fedwin.data.partitions.pack import check_not_empty
from fedwin.data.reader import ExampleSource, Images
from fedwin.data.registries import DATASETS, PARTITIONS
from fedwin.data.sources import (
    cifar,
    cifar100_pam,
    digit5,
    digits,
    femnist,
    folder,
    mnist,
    pacs,
    shakespeare,
    shakespeare_leaf,
    stackoverflow,
    synthetic_images,
    synthetic_text,
    tfds_data,
)
from fedwin.data.sources.arrays import from_arrays
from fedwin.data.sources.fedjax_data import from_fedjax
from fedwin.data.validation import split_validation

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "Dataset",
    "ExampleSource",
    "Examples",
    "Images",
    "Partition",
    "check",
    "deal",
    "from_arrays",
    "from_fedjax",
    "load",
    "split_validation",
]

# K where neither the caller nor the data set nor the file says it.
CLIENTS = 100


def load(name: str, data_dir=None) -> Dataset:
    """Loads a data set by name; where `data_dir` holds a packed cache of it, that is opened by memory map instead.

    Args:
      name: `cifar10` or, with parameters, `cifar100:label=coarse`.
      data_dir: the folder with its files or a parent of it; data sets that come with a package need none.

    Raises:
      UserError: unknown name or parameter, missing, damaged or inconsistent files.
    """
    DATASETS.check(name)
    if data_dir and (packed := cache.folder_of(name, data_dir)).is_dir():
        return cache.read(packed, name)  # checked when it was written
    return check(DATASETS.build(name, data_dir))


def deal(
    dataset: Dataset, partition: str | None, num_clients: int | None, seed: int, allow_empty: bool = False
) -> Partition:
    """Deals the training examples to clients; the same arguments give the same bytes in every process.

    Args:
      partition: `shards:per_client=2` and so on; None means the data set's own clients or, without any, `iid`.
      num_clients: K; None means all clients where the data set or the file has its own (`natural`, `csv`), else 100.
      seed: the partition seed, >= 0.
      allow_empty: whether a client may be without examples.

    Raises:
      UserError: unknown name or parameter, impossible numbers, an empty client.
    """
    if not partition:
        partition = "iid" if dataset.natural is None else "natural"
    if num_clients is None and PARTITIONS.check(partition).name not in ("natural", "csv"):
        num_clients = CLIENTS
    result = PARTITIONS.build(partition, dataset, num_clients, seed)
    if not allow_empty:
        check_not_empty(result)
    return result
