"""Dirichlet over clients with unequal sizes, Yurochkin et al. 2019, https://arxiv.org/abs/1905.12022."""

import math

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions.dirichlet import check_alpha, draw_dirichlet
from fedwin.data.partitions.pack import check_counts, labels_of, pack
from fedwin.data.rng import generator
from fedwin.errors import UserError


def draw_counts(class_sizes: list[int], num_clients: int, alpha: float, rng) -> np.ndarray:
    """Draws how many examples of each class each client gets, int64 [C, K]: pi ~ Dirichlet(alpha 1_K) under the cap.

    Only the numbers: the examples are shuffled once an attempt is accepted, which is the same in law.

    Args:
      class_sizes: examples of each class.
      num_clients: K.
      alpha: concentration.
      rng: draws the shares.
    """
    cap = sum(class_sizes) / num_clients
    held = np.zeros(num_clients, np.int64)
    if alpha == math.inf:
        shares = np.ones((len(class_sizes), num_clients))
    else:
        shares = draw_dirichlet(np.full(num_clients, float(alpha)), len(class_sizes), rng)
    counts = np.zeros((len(class_sizes), num_clients), np.int64)
    for c, size in enumerate(class_sizes):
        below = held < cap
        share = shares[c] * below
        if share.sum() <= 0:
            share = below.astype(float)
        cuts = np.floor(np.cumsum(share / share.sum())[:-1] * size).astype(np.int64)
        counts[c] = np.diff(cuts, prepend=0, append=size)
        held += counts[c]
    return counts


def assign_examples(by_class: list[np.ndarray], counts: np.ndarray, rng) -> list[np.ndarray]:
    """Returns rows of each client, in random order.

    Args:
      by_class: rows of each class.
      counts: examples of each class for each client, int [C, K].
      rng: shuffles classes and clients.
    """
    pieces = [np.split(rng.permutation(rows), np.cumsum(count)[:-1]) for rows, count in zip(by_class, counts)]
    return [rng.permutation(np.concatenate(parts)) for parts in zip(*pieces)]


def rows_by_class(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
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
    by_class = rows_by_class(labels, dataset.num_classes)
    for tries in range(1, max_tries + 1):
        counts = draw_counts([len(rows) for rows in by_class], num_clients, alpha, rng)
        if counts.sum(0).min() >= min_size:
            return pack(dataset, assign_examples(by_class, counts, rng), "yurochkin", tries=tries)
    raise UserError(
        f"partition 'yurochkin:alpha={alpha}': no split of {len(labels)} examples over {num_clients} clients with at "
        f"least {min_size} each in {max_tries} tries; use a larger alpha, fewer clients or a smaller min_size."
    )
