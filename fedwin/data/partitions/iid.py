"""iid: random equal parts of the training examples."""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition, offsets
from fedwin.data.partitions.pack import check_counts
from fedwin.data.rng import generator


@PARTITIONS.register("iid", paper="mcmahan2017communication")
def iid(dataset: Dataset, num_clients: int, seed: int, *, equal: bool = False) -> Partition:
    """Assigns a permutation of the N examples to the clients, floor(N / K) to each.

    Args:
      equal: whether the last N mod K examples are left out; otherwise the first N mod K clients get one more each.

    Source: the IID split of McMahan et al. 2017, https://arxiv.org/abs/1602.05629.

    Example:
      >>> from fedwin import data, testing
      >>> dataset = testing.federations.dataset(12)
      >>> data.make_partition(dataset, "iid", 5, seed=0).sizes.tolist()
      [3, 3, 2, 2, 2]
    """
    n = len(dataset.train["y"])
    check_counts("iid", n, num_clients)
    order = generator(seed, "iid").permutation(n)
    if equal:
        order = order[: n // num_clients * num_clients]
    each, remainder = divmod(len(order), num_clients)
    sizes = np.full(num_clients, each)
    sizes[:remainder] += 1
    return Partition(order.astype(np.int32), offsets(sizes))
