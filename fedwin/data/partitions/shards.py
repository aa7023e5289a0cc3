"""Shards of label-sorted examples, so that every client has few classes."""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions.pack import check_counts, labels_of
from fedwin.data.rng import generator
from fedwin.registry.ranges import PositiveInt


@PARTITIONS.register("shards", paper="mcmahan2017communication")
def shards(dataset: Dataset, num_clients: int, seed: int, *, per_client: PositiveInt = 2) -> Partition:
    """Sorts examples by label, cuts K s shards of m = floor(N / (K s)) examples, gives s random ones to each client.

    If m divides the size of every class, a client has 1 to s classes (two of its shards may be of the same class); else
    at most 2 s, unless a class is smaller than m. The last N - K s m examples of the sorted list are left out. The
    report has 'shard_size' m.

    Args:
      per_client: number of shards per client s.

    Source: McMahan et al. 2017, https://arxiv.org/abs/1602.05629.

    Example:
      >>> from fedwin import data, testing
      >>> dataset = testing.federations.dataset(12)
      >>> data.make_partition(dataset, "shards:per_client=1", 4, seed=0).report["histogram"].max(1).tolist()
      [3, 3, 3, 3]
    """
    labels = labels_of(dataset, "shards")
    check_counts("shards", len(labels), num_clients, per_client)
    count = num_clients * per_client
    size = len(labels) // count
    shard_rows = np.argsort(labels, kind="stable")[: count * size].reshape(count, size)
    assigned = generator(seed, "shards").permutation(count).reshape(num_clients, per_client)
    rows = shard_rows[assigned].reshape(num_clients, per_client * size)
    return Partition.from_lists(rows, report={"shard_size": size})
