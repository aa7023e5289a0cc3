"""Data sets and how they are dealt to clients.

`load('cifar10', data_dir)` reads a data set from the files that people have; `deal(dataset, 'dirichlet:alpha=0.5', 100,
seed)` says which client holds which examples.
"""

import warnings

from fedwin.data import cache, integrity, places
from fedwin.data.check import check
from fedwin.data.dataset import Dataset, Examples, Partition
from fedwin.data.partitions.pack import check_not_empty
from fedwin.data.reader import ExampleSource, Images
from fedwin.data.registries import DATASETS, PARTITIONS
from fedwin.data.sources.arrays import from_arrays
from fedwin.data.sources.fedjax_data import from_fedjax
from fedwin.data.validation import split_validation
from fedwin.errors import UserError
from fedwin.registry import checks
from fedwin.registry.choices import MOST

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
    "original",
    "split_validation",
]

# K where neither the caller nor the data set nor the file gives it.
CLIENTS = 100


def load(name: str, data_dir=None) -> Dataset:
    """Loads a data set by name; where there is a packed cache of it, that is opened by memory map instead.

    The cache is in `data_dir` or, as `prepare` writes it by default, in the user's cache directory. A damaged one is
    rebuilt from the original files, with a warning.

    Args:
      name: `cifar10` or, with parameters, `cifar100:label=coarse`.
      data_dir: the folder with its files or a parent of it; data sets that come with a package need none.

    Raises:
      UserError: unknown name or parameter, missing, damaged or inconsistent files.
    """
    DATASETS.check(name)
    text = str(name)
    packed = places.find(text, data_dir)
    if packed is None:
        return original(name, data_dir)
    try:
        return cache.read(packed, text)  # checked when it was written
    except integrity.Damaged as error:
        return mended(packed, text, data_dir, error)


def original(name: str, data_dir=None) -> Dataset:
    """Loads a data set from its original files, whether or not there is a packed cache; arguments as for `load`."""
    try:
        return check(DATASETS.build(name, data_dir))
    except OSError as error:  # a folder that may be listed but not entered, a disk that fails
        place = error.filename or data_dir
        raise UserError(f"{place}: can't be read ({error.strerror or error}); check --data_dir.") from error


def mended(packed, text: str, data_dir, damage: integrity.Damaged) -> Dataset:
    """Returns the data set from its original files, and rebuilds its damaged cache.

    Args:
      packed: the damaged cache.
      text: the choice that it is of.
      data_dir: where the original files are.
      damage: what is wrong with the cache.

    Raises:
      UserError: without the original files.
    """
    try:
        dataset = original(text, data_dir)
    except UserError as error:
        raise UserError(f"{damage} Remove {packed} and prepare the data set again; without it: {error}") from error
    warnings.warn(f"{damage} The original files are read instead, and the cache is made anew.", stacklevel=3)
    try:
        cache.write_to(packed, dataset, text, data_dir=data_dir)
    except UserError as error:
        warnings.warn(str(error), stacklevel=3)
    return dataset


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
    if not isinstance(dataset, Dataset):
        raise UserError(f"deal: dataset is a {type(dataset).__name__}; give a Dataset, as data.load returns.")
    checks.integer("deal", -MOST, num_clients=num_clients)
    if seed is None:
        raise UserError("deal: seed=None; give the partition an integer as its seed, such as 0.")
    checks.integer("deal", 0, seed=seed)
    if not partition:
        partition = "iid" if dataset.natural is None else "natural"
    if num_clients is None and PARTITIONS.check(partition).name not in ("natural", "csv"):
        num_clients = CLIENTS
    result = PARTITIONS.build(partition, dataset, num_clients, seed)
    if not allow_empty:
        check_not_empty(result)
    return result
