"""FedSAM, FedASAM: clients look for flat minima with sharpness-aware minimization.

FedASAM's perturbation adapts to the size of every weight. Weights are all parameters except biases: kernels and the
scales of normalization layers.
"""

import jax
import jax.numpy as jnp

from fedwin import core, local, rules, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive

# Names of bias parameters in flax and haiku; a matrix of this name is LoRA's.
BIASES = ("bias", "b", "offset")


def perturbation(params, gradient, rho, eta=None):
    """Computes the ascent step of (adaptive) sharpness-aware minimization at y = params.

    eps = rho T^2 g / ||T g||,   T = |y| + eta for weights, 1 for biases;   T = 1 without eta
    """

    def scale(path, y):
        name = jax.tree_util.keystr(path[-1:], simple=True)
        return jnp.ones_like(y) if eta is None or (name in BIASES and y.ndim < 2) else jnp.abs(y) + eta

    t = jax.tree_util.tree_map_with_path(scale, params)
    scaled = tree.mul(t, gradient)
    return tree.scale(rho / (tree.norm(scaled) + 1e-16), tree.mul(t, scaled))


def sharpness_aware(rho, eta=None):
    """Returns the local rule of FedSAM (eta=None) and FedASAM: direction = g(y + eps), eps as in `perturbation`."""

    def rule(grad: rules.GradientFn, s: rules.Step) -> rules.RuleOutput:
        g = grad(s.params)
        return rules.RuleOutput(grad(tree.add(s.params, perturbation(s.params, g.value, rho, eta))).value, None, g)

    return rule


@ALGORITHMS.register(
    "fedsam",
    paper=("caldarola2022improving", "qu2022generalized", "foret2021sharpness"),
    degenerate={"rho": 0},
    **facts(),
)
def fedsam(
    setting: core.Setting,
    solve: local.Solver,
    *,
    rho: NonNegative = 0.1,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedSAM: direction g(y + rho g(y) / ||g(y)||).

        y <- y - lr g(y + rho g(y) / ||g(y)||)
        x <- x + server_lr sum_i p_i (y_i - x)

    Source: Caldarola et al., Improving Generalization in Federated Learning by Seeking Flat Minima, 2022,
    https://arxiv.org/abs/2203.11834. Qu et al., Generalized Federated Learning via Sharpness Aware Minimization, 2022,
    https://arxiv.org/abs/2206.02618.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedsam:rho=0.1")
      {'model': [3.876, 3.283, 3.144]}
    """
    client = common.fedavg_client(solve, weighting, sharpness_aware(rho))
    return core.algorithm(client, common.fedavg_server(server_lr), weighting=weighting)


@ALGORITHMS.register("fedasam", like="fedsam", paper=("caldarola2022improving", "kwon2021asam"))
def fedasam(
    setting: core.Setting,
    solve: local.Solver,
    *,
    rho: NonNegative = 0.7,
    eta: NonNegative = 0.2,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedASAM: direction g(y + rho T^2 g(y) / ||T g(y)||), T = |y| + eta.

        y <- y - lr g(y + rho T^2 g(y) / ||T g(y)||),   T = |y| + eta for weights, 1 for biases
        x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      eta: added to |y|.

    Source: https://arxiv.org/abs/2203.11834.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedasam:rho=0.1")
      {'model': [3.724, 3.169, 3.059]}
    """
    client = common.fedavg_client(solve, weighting, sharpness_aware(rho, eta))
    return core.algorithm(client, common.fedavg_server(server_lr), weighting=weighting)
