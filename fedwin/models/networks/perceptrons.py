"""Logistic regression and perceptrons."""

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers
from jax.typing import DTypeLike

from fedwin.models.layers import Dense, Initializer, flatten, haiku_kernel
from fedwin.models.network_builder import Depth, Width, network


class MLP(nn.Module):
    """x -> flatten -> (dense, ReLU) per hidden width -> classifier; logistic regression without hidden widths."""

    hidden: tuple[int, ...]
    num_classes: int
    kernel_init: Initializer = haiku_kernel
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x):
        x = flatten(x)
        for i, width in enumerate(self.hidden):
            x = nn.relu(Dense(width, kernel_init=self.kernel_init, dtype=self.dtype, name=f"dense{i + 1}")(x))
        return Dense(self.num_classes, kernel_init=self.kernel_init, dtype=self.dtype, name="classifier")(x), x

    def torch_modules(self):
        hidden = [step for i in range(len(self.hidden)) for step in (f"dense{i + 1}", "ReLU()")]
        return "Flatten()", *hidden, "classifier"


@network("digits_mlp", parameters="4,810", usual=((8, 8, 1), 10))
def digits_mlp(input_shape, num_classes, *, hidden: Width = 64):
    """One hidden layer for the 8x8 digits: 64 -> hidden -> 10, He initialization.

    Args:
      hidden: width of the hidden layer.
    """
    return MLP((hidden,), num_classes, initializers.he_normal())


@network("mlp", paper="mcmahan2017communication", parameters="199,210", usual=((28, 28, 1), 10))
def mlp(input_shape, num_classes, *, hidden: Width = 200, layers: Depth = 2):
    """784-200-200-10, McMahan et al.'s 2NN, Glorot initialization.

    Args:
      hidden: width of each hidden layer.
      layers: number of hidden layers; `logistic` has none.
    """
    return MLP((hidden,) * layers, num_classes, initializers.glorot_uniform())


@network("emnist_dense", paper="ro2021fedjax", parameters="209,662", usual=((28, 28, 1), 62))
def emnist_dense(input_shape, num_classes, *, hidden: Width = 200):
    """FedJAX's dense network 784-200-200-62, haiku's initialization.

    Args:
      hidden: width of both hidden layers.
    """
    return MLP((hidden, hidden), num_classes)


@network("logistic", paper="ro2021fedjax", parameters="48,670", usual=((28, 28, 1), 62))
def logistic(input_shape, num_classes):
    """FedJAX's logistic regression: 48,670 parameters (EMNIST-62), 172,900 (CIFAR-100 cut to 24x24x3)."""
    return MLP((), num_classes)
