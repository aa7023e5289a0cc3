"""The homogeneous split: examples dealt at random."""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition, offsets
from fedwin.data.partitions.pack import check_counts, finish
from fedwin.data.rng import generator


@PARTITIONS.register("iid")
def iid(dataset: Dataset, num_clients: int, seed: int, *, equal: bool = False) -> Partition:
    """Deals a permutation of the N examples, floor(N / K) to each client.

    Args:
      equal: leave the last N mod K examples out; otherwise the first N mod K clients get one more each.
    """
    n = len(dataset.train["y"])
    check_counts("iid", n, num_clients)
    order = generator(seed, "iid").permutation(n)
    if equal:
        order = order[: n // num_clients * num_clients]
    each, more = divmod(len(order), num_clients)
    sizes = np.full(num_clients, each)
    sizes[:more] += 1
    return finish(dataset, Partition(order.astype(np.int32), offsets(sizes)), "iid")
