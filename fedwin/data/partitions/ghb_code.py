"""The label-skewed split that the released code of generalised heavy-ball momentum uses for alpha > 0.

Zaccone et al. 2023, https://arxiv.org/abs/2311.18578. It differs from the paper's own description (`dirichlet`).
"""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions.dirichlet import check_alpha
from fedwin.data.partitions.pack import check_counts, labels_of, pack
from fedwin.data.partitions.yurochkin import assign_examples, draw_counts, rows_by_class
from fedwin.data.rng import generator


def rebalance(lists: list[np.ndarray], size: int, rng) -> list[np.ndarray]:
    """Moves random surplus examples of large clients to small ones.

    Args:
      lists: rows of each client.
      size: what clients are filled up, or cut, to.
      rng: shuffles the surplus.
    """
    surplus = rng.permutation(np.concatenate([rows[size:] for rows in lists]))
    result = []
    for rows in lists:
        missing = max(size - len(rows), 0)
        result.append(np.concatenate([rows[:size], surplus[:missing]]))
        surplus = surplus[missing:]
    for k, row in enumerate(surplus):  # N mod K examples, one more for the first clients
        result[k] = np.append(result[k], row)
    return result


@PARTITIONS.register("ghb_code")
def ghb_code(dataset: Dataset, num_clients: int, seed: int, *, alpha: float, tries: int = 100) -> Partition:
    """The Yurochkin draw of least size deviation in `tries`, rebalanced to floor(N / K) (+ 1); alpha = 0: label runs.

    Args:
      alpha: concentration, >= 0.
      tries: draws to choose from, at least 1.

    Returns:
      Partition whose report has 'moved', the examples that the rebalancing took to another client.
    """
    check_alpha("ghb_code", alpha, zero=True)
    labels = labels_of(dataset, "ghb_code")
    check_counts("ghb_code", len(labels), num_clients)
    rng = generator(seed, "ghb_code")
    if alpha == 0:
        shuffled = rng.permutation(len(labels))
        runs = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], num_clients)
        return pack(dataset, [runs[k] for k in rng.permutation(num_clients)], "ghb_code", moved=0)
    by_class = rows_by_class(labels, dataset.num_classes)
    best, spread = np.zeros((len(by_class), num_clients), int), np.inf
    for _ in range(max(tries, 1)):
        counts = draw_counts([len(rows) for rows in by_class], num_clients, alpha, rng)
        deviation = counts.sum(0).std()
        if deviation < spread:
            best, spread = counts, deviation
    size = len(labels) // num_clients
    moved = int(np.maximum(best.sum(0) - size, 0).sum())
    return pack(dataset, rebalance(assign_examples(by_class, best, rng), size, rng), "ghb_code", moved=moved)
