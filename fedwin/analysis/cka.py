"""Linear CKA: how alike two models' outputs are, up to rotation, scale and shift."""

import itertools

import numpy as np

from fedwin.analysis.models import array
from fedwin.errors import UserError


def linear_cka(x, y) -> float:
    """Returns ||Y'X||_F^2 / (||X'X||_F ||Y'Y||_F) of the centred outputs; NaN where one of them does not vary.

    Take all examples at once: CKAs of batches do not average to it.

    >>> x = [[0.0, 1.0], [1.0, 0.0], [3.0, 1.0]]
    >>> turned = [[y, 5 - x] for x, y in x]
    >>> round(linear_cka(x, turned), 6)
    1.0

    Args:
      x: outputs (logits, features) of one model on n examples [n, ...].
      y: those of another model on the same examples in the same order [n, ...].

    Returns:
      A number in 0..1.

    Raises:
      UserError: when the numbers of examples differ.

    Kornblith et al., Similarity of Neural Network Representations Revisited, 2019, https://arxiv.org/abs/1905.00414.
    """
    x, y = (_centred(array("linear_cka: outputs", values)) for values in (x, y))
    if len(x) != len(y):
        raise UserError(f"linear_cka: {len(x)} and {len(y)} examples; give both models the same ones.")
    if len(x) < max(x.shape[1], y.shape[1]):
        # Gram matrices [n, n] are smaller then, and the number is the same: ||Y'X||_F^2 = <XX', YY'>.
        x, y = x @ x.T, y @ y.T
        shared, own = np.sum(x * y), np.linalg.norm(x) * np.linalg.norm(y)
    else:
        shared, own = np.sum((y.T @ x) ** 2), np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(shared / own) if own > 0 else float("nan")


def mean_cka(outputs) -> float:
    """Returns the mean of linear_cka over the unordered pairs of clients, IMA's measure of their covariance.

    Args:
      outputs: of the clients' models [K, n, ...], or K arrays [n, ...].

    Raises:
      UserError: when there are fewer than two clients.
    """
    if len(outputs) < 2:
        raise UserError(f"mean_cka: outputs of {len(outputs)} client(s); a pair needs two.")
    return float(np.mean([linear_cka(x, y) for x, y in itertools.combinations(outputs, 2)]))


def _centred(x):
    x = x.reshape(len(x), -1)
    # From the first row: constant columns become 0 exactly, and a large common offset costs no digits.
    x = x - x[:1]
    return x - x.mean(0)
