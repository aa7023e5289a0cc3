"""The loss on the straight line through two models."""

import numpy as np

from fedwin.analysis import models
from fedwin.errors import UserError


def line(first, second, evaluate, s=None):
    """Evaluates models on the straight line through two models.

        w(s) = (1 - s) w_1 + s w_2;   s = 0 and s = 1 are bitwise the two models

    Beyond the two models a BatchNorm variance may become negative (the loss is NaN then): let `evaluate` recompute the
    statistics first (`analysis.recomputed`).

    Args:
      first: w_1, Variables or a tree.
      second: w_2, of the same network.
      evaluate: model -> tree of numbers.
      s: positions, by default 41 points from -0.5 to 1.5 [n].

    Returns:
      (s, evaluate's tree with a leading axis [n]).

    Raises:
      UserError: when the models are of different networks, or s is not a list of finite numbers.

    Source: Zhou et al., Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data, 2023,
    https://arxiv.org/abs/2305.07845.

    Example:
      >>> import numpy as np
      >>> s, loss = line({"w": np.zeros(2)}, {"w": np.ones(2)}, lambda model: (model["w"] ** 2).sum(), [0, 0.5, 1])
      >>> loss.tolist()
      [0.0, 0.5, 2.0]
    """
    s = models.array("line: s", np.linspace(-0.5, 1.5, 41) if s is None else s, 1)
    if not np.isfinite(s).all():
        raise UserError("line: s holds a NaN or an infinity.")
    return s, models.stacked([evaluate(models.mix([1 - x, x], (first, second))) for x in s])
