"""Logistic regression and perceptrons."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers

from fedwin.models.layers import flatten, haiku_kernel
from fedwin.models.model import MODELS, Model, compute_dtype
from fedwin.models.network_builder import DEEPEST, build_network, check_size


class MLP(nn.Module):
    """x -> flatten -> (dense, ReLU) per hidden width -> classifier; without hidden widths logistic regression."""

    hidden: tuple[int, ...]
    num_classes: int
    kernel_init: Any = haiku_kernel
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        x = flatten(x)
        for i, width in enumerate(self.hidden):
            x = nn.relu(nn.Dense(width, kernel_init=self.kernel_init, dtype=self.dtype, name=f"dense{i + 1}")(x))
        logits = nn.Dense(self.num_classes, kernel_init=self.kernel_init, dtype=self.dtype, name="classifier")(x)
        return logits, x


@MODELS.register("digits_mlp", parameters="4,810", usual=((8, 8, 1), 10))
def digits_mlp(input_shape, num_classes, *, hidden: int = 64, dtype: str = "float32") -> Model:
    """One hidden layer for the 8x8 digits: 64 -> hidden -> 10, 4,810 parameters.

    Args:
      hidden: width of the hidden layer.
    """
    check_size("digits_mlp", "hidden", hidden)
    module = MLP((hidden,), num_classes, initializers.he_normal(), compute_dtype(dtype))
    return build_network("digits_mlp", module, input_shape, num_classes)


@MODELS.register("mlp", paper="mcmahan2017communication", parameters="199,210", usual=((28, 28, 1), 10))
def mlp(input_shape, num_classes, *, hidden: int = 200, layers: int = 2, dtype: str = "float32") -> Model:
    """784-200-200-10, McMahan et al.'s 2NN: 199,210 parameters. https://arxiv.org/abs/1602.05629

    Args:
      hidden: width of each hidden layer.
      layers: number of hidden layers; `logistic` has none.
    """
    check_size("mlp", "hidden", hidden)
    check_size("mlp", "layers", layers, DEEPEST)
    module = MLP((hidden,) * layers, num_classes, initializers.glorot_uniform(), compute_dtype(dtype))
    return build_network("mlp", module, input_shape, num_classes)


@MODELS.register("emnist_dense", paper="ro2021fedjax", parameters="209,662", usual=((28, 28, 1), 62))
def emnist_dense(input_shape, num_classes, *, hidden: int = 200, dtype: str = "float32") -> Model:
    """FedJAX's dense net 784-200-200-62, 209,662 parameters. https://arxiv.org/abs/2108.02117

    Args:
      hidden: width of both hidden layers.
    """
    check_size("emnist_dense", "hidden", hidden)
    module = MLP((hidden, hidden), num_classes, haiku_kernel, compute_dtype(dtype))
    return build_network("emnist_dense", module, input_shape, num_classes)


@MODELS.register("logistic", paper="ro2021fedjax", parameters="48,670", usual=((28, 28, 1), 62))
def logistic(input_shape, num_classes, *, dtype: str = "float32") -> Model:
    """FedJAX's logistic regression: 48,670 parameters (EMNIST-62), 172,900 (CIFAR-100 cut to 24x24x3)."""
    module = MLP((), num_classes, haiku_kernel, compute_dtype(dtype))
    return build_network("logistic", module, input_shape, num_classes)
