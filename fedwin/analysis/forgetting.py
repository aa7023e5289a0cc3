"""Forgetting: how local training changes the accuracy on other clients' data."""

import numpy as np

from fedwin.analysis.models import array
from fedwin.errors import UserError


def forgetting(before, after) -> np.ndarray:
    """Computes the forgetting matrix; positive entries are forgetting. (The thesis's heat map shows -F.)

        F[i, k] = Acc_k(w_t) - Acc_k(w_{t+1}^i),   rows are models, columns data sets

    Args:
      before: Acc_k(w_t), accuracy of the received model on every client's validation examples [K].
      after: Acc_k(w_{t+1}^i), accuracy on client k's examples of the model that client i trained from w_t [K, K].

    Returns:
      F, float64 [K, K].

    Raises:
      UserError: when shapes do not match.

    Source: Legate, Re-Weighted Softmax Cross-Entropy to Control Forgetting in Federated Learning,
    https://arxiv.org/abs/2304.05260.

    Example:
      >>> F = forgetting([0.5, 0.6], [[0.75, 0.35], [0.25, 0.85]])
      >>> F.round(2).tolist()
      [[-0.25, 0.25], [0.25, -0.25]]
    """
    before, after = array("forgetting: before", before, 1), array("forgetting: after", after, 2)
    if after.shape != (len(before), len(before)):
        raise UserError(
            f"forgetting: accuracies of shape {after.shape} after and {before.shape} before training; pass [K, K] "
            "and [K]."
        )
    return before - after


def per_model(matrix) -> np.ndarray:
    """Computes how much of the other clients' data each model forgot.

        F_i = mean_{k != i} F[i, k]

    Args:
      matrix: result of `forgetting`, or accuracies [model, data set].

    Returns:
      float64 [K].

    Raises:
      UserError: unless the matrix is square with K >= 2.
    """
    matrix = array("per_model: matrix", matrix, 2)
    if matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise UserError(f"per_model: a matrix of shape {matrix.shape}; [K, K] with K >= 2 is needed.")
    return matrix[~np.eye(len(matrix), dtype=bool)].reshape(len(matrix), -1).mean(1)


def mean_forgetting(matrix) -> float:
    """Computes the mean of F_i over the cohort.

    Args:
      matrix: result of `forgetting` [K, K].

    Raises:
      UserError: unless the matrix is square with K >= 2.
    """
    return float(per_model(matrix).mean())
