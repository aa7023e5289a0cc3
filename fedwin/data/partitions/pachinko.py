"""Pachinko allocation: Dirichlet label skew over a two-level tree of labels."""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions import fill
from fedwin.data.partitions.dirichlet import draw_dirichlet
from fedwin.data.partitions.pack import check_counts
from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry.ranges import Positive, PositiveInt


@PARTITIONS.register("pachinko", paper="reddi2021adaptive")
def pachinko(
    dataset: Dataset,
    num_clients: int,
    seed: int,
    *,
    alpha: Positive = 0.1,
    beta: Positive = 10.0,
    per_client: PositiveInt | None = None,
) -> Partition:
    """Draws coarse label c ~ theta_k, fine label f ~ phi_kc and an unused example of f, client after client.

        theta_k ~ Dirichlet(alpha 1) over the coarse labels,   phi_kc ~ Dirichlet(beta 1) over the fine labels of c

    A fine label without examples is removed from phi_kc, which is renormalized within c; a coarse label without fine
    ones is removed from theta_k.

    Args:
      alpha: concentration over the coarse labels.
      beta: concentration over the fine labels of one coarse label.
      per_client: number of examples per client; floor(N / K) by default.

    Raises:
      UserError: a data set without two levels of labels.

    Source: Reddi et al. 2021, https://arxiv.org/abs/2003.00295, appendix, with Li and McCallum's model of 2006,
      https://dl.acm.org/doi/10.1145/1143844.1143917.

    Example:
      >>> from fedwin import data
      >>> dataset = data.load("cifar100_synthetic:n=200,tests=100")
      >>> data.make_partition(dataset, "pachinko", 4, seed=0).sizes.tolist()
      [50, 50, 50, 50]
    """
    fine, parent = label_tree(dataset)
    size = per_client or max(len(fine) // num_clients, 1)
    check_counts("pachinko", len(fine), num_clients, size)
    rng = generator(seed, "pachinko")
    num_coarse = int(parent.max()) + 1
    theta = draw_dirichlet(np.full(num_coarse, float(alpha)), num_clients, rng)
    phi = np.zeros((num_clients, len(parent)))
    for c in range(num_coarse):
        leaves = np.flatnonzero(parent == c)
        if len(leaves):
            phi[:, leaves] = draw_dirichlet(np.full(len(leaves), float(beta)), num_clients, rng)

    def weights(k, is_open):
        inside = phi[k] * is_open
        mass = np.bincount(parent, inside, minlength=num_coarse)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(inside > 0, theta[k][parent] * inside / mass[parent], 0.0)

    pools = fill.Pools(fine, len(parent), rng)
    lists, fallbacks = fill.sequential(pools, weights, np.arange(num_clients), size, rng)
    return Partition.from_lists(lists, report={"fallbacks": fallbacks})


def label_tree(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Returns (fine label of each training example [N], coarse label of each fine label).

    One level is the data set's label, the other its feature 'coarse' or 'fine'.

    Raises:
      UserError: there is only one level, or a fine label belongs to two coarse ones.
    """
    features = dataset.train
    if "coarse" in features:
        fine, coarse = np.asarray(features["y"]), np.asarray(features["coarse"])
    elif "fine" in features:
        fine, coarse = np.asarray(features["fine"]), np.asarray(features["y"])
    else:
        raise UserError(f"partition 'pachinko' needs coarse and fine labels; '{dataset.name}' has none: use cifar100.")
    parent = np.zeros(fine.max() + 1, np.int64)
    parent[fine] = coarse
    if (parent[fine] != coarse).any():
        raise UserError(f"partition 'pachinko': a fine label of '{dataset.name}' belongs to two coarse labels.")
    return fine, parent
