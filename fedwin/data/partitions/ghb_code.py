"""The label-skewed split of the released code of generalized heavy-ball momentum, for alpha > 0."""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions.dirichlet import check_alpha
from fedwin.data.partitions.pack import assign_examples, check_counts, labels_of
from fedwin.data.partitions.yurochkin import draw_counts, rows_by_class
from fedwin.data.rng import generator
from fedwin.registry.ranges import PositiveInt


@PARTITIONS.register("ghb_code", paper="zaccone2023communication")
def ghb_code(dataset: Dataset, num_clients: int, seed: int, *, alpha: float, tries: PositiveInt = 100) -> Partition:
    """Takes the most even of several Yurochkin draws and rebalances it to floor(N / K) (+ 1) examples per client.

    alpha = 0 cuts the label-sorted list into K runs instead. The report has 'moved', the number of examples that
    rebalancing took to another client.

    Args:
      alpha: concentration, >= 0.
      tries: number of draws to choose from.

    Source: the code of Zaccone et al. 2023, https://arxiv.org/abs/2311.18578, whose text describes `dirichlet`.

    Example:
      >>> from fedwin import data, testing
      >>> dataset = testing.federations.dataset(12)
      >>> data.make_partition(dataset, "ghb_code:alpha=0.5", 4, seed=0).sizes.tolist()
      [3, 3, 3, 3]
    """
    check_alpha("ghb_code", alpha, zero=True)
    labels = labels_of(dataset, "ghb_code")
    check_counts("ghb_code", len(labels), num_clients)
    rng = generator(seed, "ghb_code")
    if alpha == 0:
        shuffled = rng.permutation(len(labels))
        runs = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], num_clients)
        return Partition.from_lists([runs[k] for k in rng.permutation(num_clients)], report={"moved": 0})
    by_class = rows_by_class(labels, dataset.num_classes)
    draws = (draw_counts([len(rows) for rows in by_class], num_clients, alpha, rng) for _ in range(tries))
    drawn = assign_examples(by_class, min(draws, key=lambda counts: counts.sum(0).std()), rng)
    lists = rebalance(drawn, len(labels) // num_clients, rng)
    moved = sum(np.setdiff1d(after, before).size for before, after in zip(drawn, lists))
    return Partition.from_lists(lists, report={"moved": moved})


def rebalance(lists: list[np.ndarray], size: int, rng) -> list[np.ndarray]:
    """Moves random surplus examples of clients with more than `size` to those with fewer; returns the new rows."""
    surplus = rng.permutation(np.concatenate([rows[size:] for rows in lists]))
    result = []
    for rows in lists:
        missing = max(size - len(rows), 0)
        result.append(np.concatenate([rows[:size], surplus[:missing]]))
        surplus = surplus[missing:]
    for k, row in enumerate(surplus):  # the last N mod K examples: one more for each of the first clients
        result[k] = np.append(result[k], row)
    return result
