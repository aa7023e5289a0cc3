"""Shards of label-sorted data, McMahan et al. 2017, https://arxiv.org/abs/1602.05629."""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions.pack import check_counts, labels_of, pack
from fedwin.data.rng import generator


@PARTITIONS.register("shards")
def shards(dataset: Dataset, num_clients: int, seed: int, *, per_client: int = 2) -> Partition:
    """Sorts by label, cuts S = K s shards of m = floor(N / S) examples and deals s random shards to each client.

    A client has between 1 and s classes where m divides every class (two shards of one class can meet), else at
    most 2 s. The N - S m examples at the end of the sorted list are left out.

    Args:
      per_client: s, shards per client.
    """
    labels = labels_of(dataset, "shards")
    check_counts("shards", len(labels), num_clients, per_client)
    count = num_clients * per_client
    size = len(labels) // count
    pieces = np.argsort(labels, kind="stable")[: count * size].reshape(count, size)
    dealt = generator(seed, "shards").permutation(count).reshape(num_clients, per_client)
    return pack(dataset, pieces[dealt].reshape(num_clients, per_client * size), "shards", shard_size=size)
