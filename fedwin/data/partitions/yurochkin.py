"""Dirichlet over clients with unequal sizes, Yurochkin et al. 2019, https://arxiv.org/abs/1905.12022."""

import math

import numpy as np

from fedwin.data.catalog import PARTITIONS
from fedwin.data.dataset import Dataset, Partition
from fedwin.data.partitions.dirichlet import check_alpha, draw
from fedwin.data.partitions.pack import check_counts, labels_of, pack
from fedwin.data.rng import generator
from fedwin.errors import UserError


def attempt(by_class: list[np.ndarray], num_clients: int, alpha: float, rng) -> list[np.ndarray]:
    """Deals every class once: slices of its shuffled examples in the shares pi ~ Dirichlet(alpha 1_K) under the cap."""
    cap = sum(map(len, by_class)) / num_clients
    sizes = np.zeros(num_clients)
    parts: list[list] = [[] for _ in range(num_clients)]
    for rows in by_class:
        rows = rng.permutation(rows)
        share = np.full(num_clients, 1.0) if alpha == math.inf else draw(np.full(num_clients, alpha), 1, rng)[0]
        below = sizes < cap
        share = share * below
        if share.sum() <= 0:
            share = below.astype(float)
        cuts = np.floor(np.cumsum(share / share.sum())[:-1] * len(rows)).astype(np.int64)
        for k, piece in enumerate(np.split(rows, cuts)):
            parts[k].append(piece)
            sizes[k] += len(piece)
    return [np.concatenate(pieces) for pieces in parts]


def classes(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """Returns the rows of each class that occurs."""
    rows = [np.flatnonzero(labels == c) for c in range(num_classes)]
    return [found for found in rows if len(found)]


@PARTITIONS.register("yurochkin")
def yurochkin(
    dataset: Dataset, num_clients: int, seed: int, *, alpha: float, min_size: int = 10, max_tries: int = 1000
) -> Partition:
    """For each class c: pi ~ Dirichlet(alpha 1_K), pi_k = 0 for clients that hold >= N / K, client k gets pi_k N_c.

    All N examples are dealt. Attempts whose smallest client has fewer than min_size examples are drawn again.

    Args:
      alpha: concentration, > 0 (inf: equal shares).
      min_size: least number of examples of a client.
      max_tries: attempts before giving up.

    Returns:
      Partition whose report has 'tries'.

    Raises:
      UserError: alpha <= 0, K min_size > N, or no attempt with min_size examples everywhere.
    """
    check_alpha("yurochkin", alpha, zero=False)
    labels = labels_of(dataset, "yurochkin")
    check_counts("yurochkin", len(labels), num_clients, max(min_size, 1))
    rng = generator(seed, "yurochkin")
    by_class = classes(labels, dataset.num_classes)
    for tries in range(1, max_tries + 1):
        lists = attempt(by_class, num_clients, alpha, rng)
        if min(map(len, lists)) >= min_size:
            return pack(dataset, [rng.permutation(rows) for rows in lists], "yurochkin", tries=tries)
    raise UserError(
        f"partition 'yurochkin:alpha={alpha}': no split of {len(labels)} examples over {num_clients} clients with at "
        f"least {min_size} each in {max_tries} tries; use a larger alpha, fewer clients or a smaller min_size."
    )
