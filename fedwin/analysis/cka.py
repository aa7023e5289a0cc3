"""Linear CKA: similarity of two models' outputs, up to rotation, scale and shift."""

import itertools

import numpy as np

from fedwin.analysis.models import array
from fedwin.errors import UserError


def linear_cka(x, y) -> float:
    """Computes the linear centered kernel alignment (CKA) of two models' outputs.

        ||Y'X||_F^2 / (||X'X||_F ||Y'Y||_F),   X and Y centered

    Pass all examples in one call: the mean of per-batch CKAs is a different number.

    Args:
      x: outputs (logits, features) of one model on n examples [n, ...].
      y: outputs of another model on the same examples in the same order [n, ...].

    Returns:
      A number in 0..1; NaN where one of the outputs does not vary.

    Raises:
      UserError: when the numbers of examples differ.

    Source: Kornblith et al., Similarity of Neural Network Representations Revisited, 2019,
    https://arxiv.org/abs/1905.00414.

    Example:
      >>> x = [[0.0, 1.0], [1.0, 0.0], [3.0, 1.0]]
      >>> rotated = [[b, 5 - a] for a, b in x]
      >>> round(linear_cka(x, rotated), 6)
      1.0
    """
    x, y = (_centered(array("linear_cka: outputs", values)) for values in (x, y))
    if len(x) != len(y):
        raise UserError(f"linear_cka: {len(x)} and {len(y)} examples; give both models the same ones.")
    if len(x) < max(x.shape[1], y.shape[1]):
        # Gram matrices [n, n] are smaller then and give the same value: ||Y'X||_F^2 = <XX', YY'>.
        x, y = x @ x.T, y @ y.T
        cross, norms = np.sum(x * y), np.linalg.norm(x) * np.linalg.norm(y)
    else:
        cross, norms = np.sum((y.T @ x) ** 2), np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(cross / norms) if norms > 0 else float("nan")


def mean_cka(outputs) -> float:
    """Computes the mean of linear_cka over the unordered pairs of clients, IMA's measure of their covariance.

    Args:
      outputs: outputs of the clients' models [K, n, ...], or a list of K arrays [n, ...].

    Returns:
      A number in 0..1.

    Raises:
      UserError: when there are fewer than two clients.

    Source: Zhou et al., Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data, 2023,
    https://arxiv.org/abs/2305.07845.

    Example:
      >>> import numpy as np
      >>> x = np.array([[0.0, 1.0], [1.0, 0.0], [3.0, 1.0]])
      >>> round(mean_cka([x, 2 * x, 1 - x]), 6)
      1.0
    """
    if len(outputs) < 2:
        raise UserError(f"mean_cka: outputs of {len(outputs)} client(s); a pair needs two.")
    return float(np.mean([linear_cka(x, y) for x, y in itertools.combinations(outputs, 2)]))


def _centered(x):
    x = x.reshape(len(x), -1)
    # Relative to the first row, constant columns become exactly 0 and a large common offset costs no precision.
    x = x - x[:1]
    return x - x.mean(0)
