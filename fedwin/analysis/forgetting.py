"""What clients unlearn about each other's data while they train."""

import numpy as np

from fedwin.analysis.models import array
from fedwin.errors import UserError


def forgetting(before, after) -> np.ndarray:
    """Returns F[i, k] = Acc_k(w_t) - Acc_k(w_{t+1}^i): rows are models, columns data sets; positive is forgetting.

    The thesis's heat map shows -F, accuracy after minus before.

    >>> F = forgetting([0.5, 0.6], [[0.75, 0.35], [0.25, 0.85]])
    >>> F.round(2).tolist()
    [[-0.25, 0.25], [0.25, -0.25]]

    Args:
      before: Acc_k(w_t), of the received model on every client's validation examples [K].
      after: Acc_k(w_{t+1}^i), of the model that client i trained from w_t on those of client k [K, K].

    Raises:
      UserError: when shapes do not match.

    Legate, Re-Weighted Softmax Cross-Entropy to Control Forgetting in Federated Learning,
    https://arxiv.org/abs/2304.05260.
    """
    before, after = array("forgetting: before", before, 1), array("forgetting: after", after, 2)
    if after.shape != (len(before), len(before)):
        raise UserError(
            f"forgetting: accuracies of shape {after.shape} after and {before.shape} before training; give [K, K] and "
            "[K]."
        )
    return before - after


def per_model(matrix) -> np.ndarray:
    """Returns F_i = mean_{k != i} F[i, k]: what model i forgot of the other clients' data [K].

    Args:
      matrix: of `forgetting`, or of accuracies [model, data set].

    Raises:
      UserError: unless it is square, of two clients at least.
    """
    matrix = array("per_model: matrix", matrix, 2)
    if matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise UserError(f"per_model: a matrix of shape {matrix.shape}; [K, K] with K >= 2 is needed.")
    return matrix[~np.eye(len(matrix), dtype=bool)].reshape(len(matrix), -1).mean(1)


def mean_forgetting(matrix) -> float:
    """Returns the mean of F_i over the cohort.

    Args:
      matrix: of `forgetting` [K, K].
    """
    return float(per_model(matrix).mean())
