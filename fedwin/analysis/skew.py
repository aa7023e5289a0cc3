"""Skew of a partition: distances of clients' label distributions from that of all clients, inequality of sizes."""

import numpy as np

from fedwin.analysis.models import array
from fedwin.errors import UserError


def label_distances(counts) -> dict[str, np.ndarray]:
    """Computes how far each client's label distribution p is from q, that of all clients' examples.

        hellinger       sqrt(1/2 sum_c (sqrt p_c - sqrt q_c)^2)                            in [0, 1]
        jensen_shannon  sqrt(1/2 KL(p || m) + 1/2 KL(q || m)),  m = (p + q) / 2, base 2    in [0, 1]
        emd             sum_c |p_c - q_c|                                                  in [0, 2]
        wasserstein     sum_c |P_c - Q_c|,  P_c = sum_{i <= c} p_i                         in [0, C - 1]

    `emd` is the earth mover's distance of Zhao et al., between classes without an order (twice the total variation);
    `wasserstein` is the 1-Wasserstein distance of ordered labels that are one step apart, such as bins of a number.

    Args:
      counts: examples by client and class, [K, C].

    Returns:
      Name -> distance of each client, [K].

    Raises:
      UserError: negative counts, or a client without examples.

    Source: Zhao et al., Federated Learning with Non-IID Data, 2018, https://arxiv.org/abs/1806.00582.

    Example:
      >>> {name: each.round(3).tolist() for name, each in label_distances([[4, 0], [0, 4]]).items()}
      {'hellinger': [0.541, 0.541], 'jensen_shannon': [0.558, 0.558], 'emd': [1.0, 1.0], 'wasserstein': [0.5, 0.5]}
    """
    counts = array("label_distances: counts", counts, 2)
    if (counts < 0).any() or (counts.sum(1) == 0).any():
        raise UserError("label_distances: a count is negative, or a client has no example; leave such clients out.")
    p, q = counts / counts.sum(1, keepdims=True), counts.sum(0) / counts.sum()
    middle = (p + q) / 2
    divergence = lambda a: np.sum(a * np.log2(np.where(a > 0, a, 1) / np.where(middle > 0, middle, 1)), 1)
    return {
        "hellinger": np.sqrt(np.sum((np.sqrt(p) - np.sqrt(q)) ** 2, 1) / 2),
        "jensen_shannon": np.sqrt(np.maximum(divergence(p) + divergence(np.broadcast_to(q, p.shape)), 0) / 2),
        "emd": np.abs(p - q).sum(1),
        "wasserstein": np.abs(np.cumsum(p - q, 1)).sum(1),
    }


def gini(sizes) -> float:
    """Computes the Gini coefficient of client sizes: 0 if all are equal, 1 - 1/K if one client has everything.

        G = sum_jk |N_j - N_k| / (2 K sum_k N_k)

    Args:
      sizes: N_k >= 0, [K].

    Raises:
      UserError: a negative size, or no example at all.

    Example:
      >>> gini([1, 1, 1, 1]), gini([0, 0, 0, 8])
      (0.0, 0.75)
    """
    sizes = np.sort(array("gini: sizes", sizes, 1))
    if sizes[0] < 0 or not sizes.sum():
        raise UserError("gini: a size is negative, or all are 0; pass the clients' numbers of examples.")
    ranks = 2 * np.arange(1, len(sizes) + 1) - len(sizes) - 1
    return float(ranks @ sizes / (len(sizes) * sizes.sum()))
