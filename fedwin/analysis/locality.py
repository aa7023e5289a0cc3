"""How far clients' models stand from the global one: the fifth factor of its loss."""

import numpy as np

from fedwin.analysis import models
from fedwin.errors import UserError


def locality(clients, centre) -> np.ndarray:
    """Returns the distances of clients' models from the global one, ||w_k - w_GM||_2 over parameters [K].

        f_GM = sum_k p_k f_k + O(max_k ||w_k - w_GM||^2)

    Args:
      clients: w_k, a list of K Variables or trees.
      centre: w_GM = sum_k p_k w_k.

    Raises:
      UserError: when there is no client, or models are of several networks.

    Zhou et al., Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data, 2023,
    https://arxiv.org/abs/2305.07845.
    """
    if not clients:
        raise UserError("locality: no client's model.")
    models.check_alike((centre, *clients))
    middle = models.vector(centre)
    return np.array([np.linalg.norm(models.vector(client) - middle) for client in clients])
