"""The loss on the straight line through two models."""

import numpy as np

from fedwin.analysis import models
from fedwin.errors import UserError


def line(first, second, evaluate, s=None):
    """Evaluates w(s) = (1 - s) w_1 + s w_2; s = 0 and s = 1 are the two models to the bit.

    Beyond its ends a BatchNorm variance may turn negative (its loss is NaN then): let `evaluate` recompute the
    statistics first (`analysis.recomputed`).

    Args:
      first, second: w_1, w_2, Variables or trees; evaluate: model -> tree of numbers; s: [n], by default 41 points
        from -0.5 to 1.5.
    Returns:
      (s, evaluate's tree with a leading axis [n]).
    Raises:
      UserError: models of two networks, or an s that is not a list of finite numbers.
    Zhou et al., Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data, 2023,
    https://arxiv.org/abs/2305.07845.
    """
    s = models.array("line: s", np.linspace(-0.5, 1.5, 41) if s is None else s, 1)
    if not np.isfinite(s).all():
        raise UserError("line: s holds a NaN or an infinity.")
    return s, models.stacked([evaluate(models.mix([1 - x, x], (first, second))) for x in s])
