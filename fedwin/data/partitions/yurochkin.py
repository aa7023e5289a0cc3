"""Dirichlet split of each class over the clients, whose sizes therefore differ."""

import math

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition, floor_of_share
from fedwin.data.partitions.dirichlet import check_alpha, draw_dirichlet
from fedwin.data.partitions.pack import assign_examples, check_counts, labels_of, with_classes
from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, PositiveInt


@PARTITIONS.register("yurochkin", paper="yurochkin2019bayesian")
def yurochkin(
    dataset: Dataset,
    num_clients: int,
    seed: int,
    *,
    alpha: float,
    min_size: NonNegativeInt = 10,
    max_tries: PositiveInt = 1000,
    bins: PositiveInt | None = None,
) -> Partition:
    """Gives client k a share pi_k of class c, with pi ~ Dirichlet(alpha 1_K), class by class.

        pi_k = 0 for clients that already hold N / K examples, then pi <- pi / sum(pi)

    All N examples are assigned: a class is cut at N_c times the cumulative shares, rounded down. As in the authors'
    code, a rounding error there may give the last client one example of a class although its share is 0. Draws whose
    smallest client has fewer than min_size examples are repeated; the report has 'tries', the number of draws.

    Args:
      alpha: concentration, > 0; inf gives equal shares.
      min_size: minimum number of examples of a client.
      max_tries: maximum number of draws; UserError if none of them has min_size examples for every client.

    Source: Yurochkin et al. 2019, https://arxiv.org/abs/1905.12022.

    Example:
      >>> from fedwin import data, testing
      >>> dataset = testing.federations.dataset(12)
      >>> data.make_partition(dataset, "yurochkin:alpha=5,min_size=1", 3, seed=0).order.size
      12
    """
    check_alpha("yurochkin", alpha, zero=False)
    dataset = with_classes(dataset, "yurochkin", bins)
    labels = labels_of(dataset, "yurochkin")
    check_counts("yurochkin", len(labels), num_clients, max(min_size, 1))
    rng = generator(seed, "yurochkin")
    by_class = rows_by_class(labels, dataset.num_classes)
    for tries in range(1, max_tries + 1):
        counts = draw_counts([len(rows) for rows in by_class], num_clients, alpha, rng)
        if counts.sum(0).min() >= min_size:
            return Partition.from_lists(assign_examples(by_class, counts, rng), report={"tries": tries})
    raise UserError(
        f"partition 'yurochkin:alpha={alpha}': no split of {len(labels)} examples over {num_clients} clients with at "
        f"least {min_size} each in {max_tries} tries; use a larger alpha, fewer clients or a smaller min_size."
    )


def draw_counts(class_sizes: list[int], num_clients: int, alpha: float, rng) -> np.ndarray:
    """Draws how many examples of each class each client gets, int64 [C, K]: shares ~ Dirichlet(alpha 1_K), 0 if full.

    Only the counts are drawn, from the sizes of the classes [C]; examples are shuffled once a draw is accepted, which
    gives the same distribution.
    """
    cap = sum(class_sizes) / num_clients
    num_held = np.zeros(num_clients, np.int64)
    if alpha == math.inf:
        shares = np.ones((len(class_sizes), num_clients))
    else:
        shares = draw_dirichlet(np.full(num_clients, float(alpha)), len(class_sizes), rng)
    counts = np.zeros((len(class_sizes), num_clients), np.int64)
    for c, size in enumerate(class_sizes):
        below = num_held < cap
        share = shares[c] * below
        if share.sum() <= 0:
            share = below.astype(float)
        until = np.cumsum(share / share.sum())[:-1]
        cuts = floor_of_share(until, size) if alpha == math.inf else np.floor(until * size).astype(np.int64)
        counts[c] = np.diff(cuts, prepend=0, append=size)
        num_held += counts[c]
    return counts


def rows_by_class(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """Returns the rows of each class that occurs."""
    by_class = [np.flatnonzero(labels == c) for c in range(num_classes)]
    return [rows for rows in by_class if len(rows)]
