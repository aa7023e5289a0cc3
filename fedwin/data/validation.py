"""Holding examples back inside each client."""

import numpy as np

from fedwin.data.dataset import Partition, offsets
from fedwin.data.rng import generator
from fedwin.errors import UserError


def split_validation(partition: Partition, fraction: float, seed: int) -> tuple[Partition, Partition]:
    """Splits every client's n examples at random into n - n_val for training and n_val = floor(fraction n).

    Args:
      partition: the clients' examples.
      fraction: in [0, 1).
      seed: decides which examples are held back.

    Returns:
      (training, validation); both keep ids and domains, and the order in which the examples were dealt. Small clients
      may have no validation example.
    """
    if not isinstance(fraction, (int, float)) or not 0 <= fraction < 1:
        raise UserError(f"val_fraction={fraction}; give a number from 0 up to, but not including, 1.")
    sizes = partition.sizes
    held = np.floor(fraction * sizes + 1e-9).astype(np.int64)  # 0.29 * 100 is 28.999... in binary
    client = np.repeat(np.arange(len(sizes)), sizes)
    shuffled = np.lexsort((generator(seed, "validation").random(len(client)), client))
    is_held = np.zeros(len(client), bool)
    is_held[shuffled] = np.arange(len(client)) - partition.offset[:-1].repeat(sizes) < held.repeat(sizes)

    def part(mask, counts):
        return Partition(partition.order[mask], offsets(counts), {"sizes": counts}, partition.ids, partition.domain)

    return part(~is_held, sizes - held), part(is_held, held)
