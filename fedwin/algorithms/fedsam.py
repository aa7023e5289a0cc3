"""FedSAM, FedASAM: clients look for flat minima with (adaptive) sharpness-aware minimisation.

    T = |y| + eta for weights, 1 for biases (ASAM);   T = 1 (SAM)
    eps = rho T^2 g(y) / ||T g(y)||                    one norm over all parameters
    client   y <- y - lr g(y + eps)                    the same mini-batch; weight decay at y
    server   x <- x + eta_s sum_i p_i (y_i - x)

Weights are all parameters but biases: kernels, and the scales of normalisation layers too.

Caldarola et al., Improving Generalization in Federated Learning by Seeking Flat Minima, 2022,
https://arxiv.org/abs/2203.11834. Qu et al., Generalized Federated Learning via Sharpness Aware Minimization, 2022,
https://arxiv.org/abs/2206.02618.
"""

import jax
import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS
from fedwin.registry import checks

# Last part of a parameter's path, in flax and in haiku.
BIASES = ("bias", "b", "offset")


def perturbation(params, gradient, rho, eta=None):
    """Returns eps = rho T^2 g / ||T g||; eta=None is SAM (T = 1)."""

    def scale(path, y):
        last = path[-1] if path else None
        name = str(getattr(last, "key", getattr(last, "name", getattr(last, "idx", last))))
        return jnp.ones_like(y) if eta is None or name in BIASES else jnp.abs(y) + eta

    t = jax.tree_util.tree_map_with_path(scale, params)
    scaled = tree.mul(t, gradient)
    return tree.scale(rho / (tree.norm(scaled) + 1e-16), tree.mul(t, scaled))


def sharpness_aware(rho, eta=None):
    """direction = g(y + eps)."""

    def rule(grad, s: local.Step):
        g = grad(s.params)
        return grad(tree.add(s.params, perturbation(s.params, g.value, rho, eta))).value, None, g

    return rule


@ALGORITHMS.register(
    "fedsam",
    paper=("caldarola2022improving", "qu2022generalized", "foret2021sharpness"),
    degenerate={"rho": 0},
    down="1",
    up="1",
    server="1",
    client="0",
)
def fedsam(setting, solve, *, rho=0.1, server_lr=1.0, weighting="samples"):
    """FedSAM: direction g(y + rho g(y) / ||g(y)||).

    Args:
      rho: radius of the perturbation.
      server_lr: server learning rate eta_s.

    Raises:
      UserError: when a hyper-parameter is out of range.

    Source: https://arxiv.org/abs/2203.11834.
    """
    common.check("fedsam", server_lr, weighting)
    checks.number("fedsam", 0, rho=rho)
    client = common.fedavg_client(solve, weighting, sharpness_aware(rho))
    return core.algorithm(client, common.fedavg_server(server_lr), weighting=weighting)


@ALGORITHMS.register(
    "fedasam",
    paper=("caldarola2022improving", "kwon2021asam"),
    degenerate={"rho": 0},
    down="1",
    up="1",
    server="1",
    client="0",
)
def fedasam(setting, solve, *, rho=0.7, eta=0.2, server_lr=1.0, weighting="samples"):
    """FedASAM: direction g(y + rho T^2 g(y) / ||T g(y)||), T = |y| + eta.

    Args:
      rho: radius of the perturbation.
      eta: added to |y|.
      server_lr: server learning rate eta_s.

    Raises:
      UserError: when a hyper-parameter is out of range.

    Source: https://arxiv.org/abs/2203.11834.
    """
    common.check("fedasam", server_lr, weighting)
    checks.number("fedasam", 0, rho=rho, eta=eta)
    client = common.fedavg_client(solve, weighting, sharpness_aware(rho, eta))
    return core.algorithm(client, common.fedavg_server(server_lr), weighting=weighting)
