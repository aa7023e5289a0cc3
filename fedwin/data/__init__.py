"""Data sets, and their partitions into clients.

from fedwin import data

dataset = data.load("cifar10", "/data/cifar10")
partition = data.make_partition(dataset, "dirichlet:alpha=0.5", num_clients=100, seed=0)
rows = partition.client(3)                                     # training examples of client 3
"""

import warnings

from fedwin.data import cache, integrity, long_tail
from fedwin.data.checks import check, check_not_empty
from fedwin.data.contents import checksum, describe_subset
from fedwin.data.dataset import DATASETS, PARTITIONS, Dataset, Partition, split_validation
from fedwin.data.example_source import ExampleSource, Images
from fedwin.data.formats import files
from fedwin.data.partitions.pack import build
from fedwin.data.shifts import DRIFTS, SHIFTS
from fedwin.data.sources.arrays import from_arrays, from_series
from fedwin.data.sources.fedjax_data import from_fedjax
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, PositiveInt, Range, check_values

__all__ = [
    "DATASETS",
    "DRIFTS",
    "PARTITIONS",
    "SHIFTS",
    "Dataset",
    "ExampleSource",
    "Images",
    "Partition",
    "check",
    "checksum",
    "describe_subset",
    "from_arrays",
    "from_fedjax",
    "from_series",
    "load",
    "make_partition",
    "original",
    "split_validation",
]

# K if neither the caller nor the data set nor the partition file gives it.
DEFAULT_NUM_CLIENTS = 100


def load(name: str, data_dir=None) -> Dataset:
    """Loads a data set by name, from its packed cache if there is one and else from its original files.

    The cache is looked for in `data_dir` and in the user's cache directory, where `fedwin prepare` writes it by
    default, and opened by memory map. A damaged cache is rebuilt from the original files, with a warning.

    Args:
      name: name of the data set, possibly with parameters: `cifar10`, `cifar100:label=coarse`.
      data_dir: folder of its files, or a parent of it; data sets that come with a package need none.

    Raises:
      UserError: unknown name or parameter, missing, damaged or inconsistent files.

    Example:
      >>> dataset = load("digits")
      >>> dataset.train["x"].shape, dataset.num_classes
      ((1400, 8, 8, 1), 10)
    """
    DATASETS.check(name)
    text = str(name)
    cached = cache.find(text, data_dir)
    if cached is None:
        return original(name, data_dir)
    try:
        return cache.read(cached, text)  # checked when it was written
    except integrity.DamagedCache as error:
        return rebuild_cache(cached, text, data_dir, error)


def original(name: str, data_dir=None) -> Dataset:
    """Loads a data set from its original files, as `load` without packed caches."""
    try:
        return check(DATASETS.build(name, data_dir))
    except files.FolderNeeded as error:
        prepare = f"`fedwin prepare --dataset={name} --data_dir=FOLDER` fetches them or says how"
        raise UserError(f"data set '{name}' is read from files; set --data_dir=FOLDER ({prepare}).") from error
    except OSError as error:  # e.g. a folder that may be listed but not entered, or a failing disk
        path = error.filename or data_dir
        raise UserError(f"{path}: can't be read ({error.strerror or error}); check --data_dir.") from error


def rebuild_cache(cached, text: str, data_dir, damage: integrity.DamagedCache) -> Dataset:
    """Loads a data set, given its choice, from its original files, and rebuilds its damaged cache at `cached`."""
    try:
        dataset = original(text, data_dir)
    except UserError as error:
        raise UserError(f"{damage} Remove {cached} and prepare the data set again; without it: {error}") from error
    warnings.warn(f"{damage} The original files are read instead, and the cache is rebuilt.", stacklevel=3)
    try:
        cache.write_to(cached, dataset, text, data_dir=data_dir)
    except UserError as error:
        warnings.warn(str(error), stacklevel=3)
    return dataset


def make_partition(
    dataset: Dataset,
    partition: str | None,
    num_clients: int | None,
    seed: int,
    allow_empty: bool = False,
    imbalance: float = 1.0,
) -> Partition:
    """Splits the training examples over clients; the same arguments give the same partition in every process.

    Args:
      partition: name of the partitioner, possibly with parameters: `shards:per_client=2`. None stands for the data
        set's own clients, or `iid` if it has none.
      num_clients: number of clients K. None stands for all clients of a data set or file with its own clients
        (`natural`, `csv`), and for 100 otherwise.
      seed: the partition seed, >= 0.
      allow_empty: whether clients without examples are allowed.
      imbalance: ratio of the largest class to the smallest in what is split, as in `long_tail`; 1: all examples.

    Raises:
      UserError: unknown name or parameter, impossible numbers, or a client without examples.

    Example:
      >>> from fedwin.testing import federations
      >>> make_partition(federations.dataset(12), "iid", 4, seed=0).sizes.tolist()
      [3, 3, 3, 3]
    """
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"make_partition: dataset is a {type(dataset).__name__}; give a Dataset, such as data.load returns."
        )
    check_values("make_partition", PositiveInt | None, num_clients=num_clients)
    check_values("make_partition", NonNegativeInt, seed=seed)
    check_values("make_partition", Range(1), imbalance=imbalance)
    if not partition:
        partition = "iid" if dataset.natural is None else "natural"
    choice = PARTITIONS.check(partition)
    wanted = num_clients
    if num_clients is None and choice.name not in long_tail.FIXED:
        num_clients = DEFAULT_NUM_CLIENTS
    if imbalance > 1:
        result = long_tail.partitioned(dataset, choice, num_clients, seed, imbalance)
    else:
        result = build(choice, dataset, num_clients, seed)
    if (clients := result.num_clients) != (wanted or clients):
        raise UserError(f"partition '{choice}' has {clients} clients, not {wanted}; set --num_clients={clients}.")
    if not allow_empty and imbalance > 1 and choice.name in long_tail.FIXED:
        check_not_empty(result, f"lower imbalance={imbalance:g}, which leaves them none")
    elif not allow_empty:
        check_not_empty(result)
    return result
