"""The data set's own clients: writers, roles, users."""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition, offsets
from fedwin.data.partitions.pack import finish
from fedwin.data.rng import generator
from fedwin.errors import UserError


def subset(partition: Partition, clients: np.ndarray) -> Partition:
    """Returns the partition of the clients named, in that order."""
    begin, sizes = partition.offset[clients], partition.sizes[clients]
    offset = offsets(sizes)
    places = np.arange(offset[-1]) + np.repeat(begin - offset[:-1], sizes)
    pick = lambda values: None if values is None else values[clients]
    return Partition(partition.order[places], offset, ids=pick(partition.ids), domain=pick(partition.domain))


@PARTITIONS.register("natural")
def natural(dataset: Dataset, num_clients: int | None, seed: int) -> Partition:
    """Returns the data set's own clients, or a seeded choice of num_clients of them.

    The choice sorts the ids, permutes them with the seed and takes the first num_clients.

    Raises:
      UserError: there are no such clients, or fewer than num_clients.
    """
    own = dataset.natural
    if own is None:
        raise UserError(f"data set '{dataset.name}' has no clients of its own; choose --partition=iid or dirichlet.")
    if num_clients is not None and not 1 <= num_clients <= own.num_clients:
        raise UserError(f"'{dataset.name}' has {own.num_clients} clients of its own; {num_clients} were asked for.")
    extra = dict(own.report)
    if num_clients is not None and num_clients < own.num_clients:
        by_id = np.arange(own.num_clients) if own.ids is None else np.argsort(own.ids, kind="stable")
        extra["chosen_from"] = own.num_clients
        own = subset(own, by_id[generator(seed, "natural").permutation(own.num_clients)[:num_clients]])
    return finish(dataset, own, "natural", **extra)
