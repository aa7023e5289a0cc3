"""Logistic regression and perceptrons."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers

from fedwin.models.layers import flatten, haiku_kernel
from fedwin.models.model import MODELS, Model, compute_dtype
from fedwin.models.network_builder import DEEPEST, build_network, check_size


class MLP(nn.Module):
    """x -> flatten -> (dense, ReLU) per hidden width -> classifier; logistic regression without hidden widths.

    Attributes:
      hidden: widths of the hidden layers.
      num_classes: number of outputs.
      kernel_init: initializer of all kernels.
      dtype: compute type.
    """

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
      input_shape: shape of one example.
      num_classes: number of outputs.
      hidden: width of the hidden layer.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for an impossible width, empty examples or an unknown dtype.

    Example:
      >>> from fedwin import models
      >>> model = models.build("digits_mlp:hidden=32", (8, 8, 1), 10)
      >>> model.name, model.num_classes
      ('digits_mlp', 10)
    """
    check_size("digits_mlp", "hidden", hidden)
    module = MLP((hidden,), num_classes, initializers.he_normal(), compute_dtype(dtype))
    return build_network("digits_mlp", module, input_shape, num_classes)


@MODELS.register("mlp", paper="mcmahan2017communication", parameters="199,210", usual=((28, 28, 1), 10))
def mlp(input_shape, num_classes, *, hidden: int = 200, layers: int = 2, dtype: str = "float32") -> Model:
    """784-200-200-10, McMahan et al.'s 2NN: 199,210 parameters.

    Args:
      input_shape: shape of one example.
      num_classes: number of outputs.
      hidden: width of each hidden layer.
      layers: number of hidden layers; `logistic` has none.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for an impossible width, empty examples or an unknown dtype.

    Source: https://arxiv.org/abs/1602.05629

    Example:
      >>> from fedwin import models
      >>> model = models.build("mlp:hidden=100,layers=1", (28, 28, 1), 10)
      >>> model.name, model.num_classes
      ('mlp', 10)
    """
    check_size("mlp", "hidden", hidden)
    check_size("mlp", "layers", layers, DEEPEST)
    module = MLP((hidden,) * layers, num_classes, initializers.glorot_uniform(), compute_dtype(dtype))
    return build_network("mlp", module, input_shape, num_classes)


@MODELS.register("emnist_dense", paper="ro2021fedjax", parameters="209,662", usual=((28, 28, 1), 62))
def emnist_dense(input_shape, num_classes, *, hidden: int = 200, dtype: str = "float32") -> Model:
    """FedJAX's dense network 784-200-200-62, 209,662 parameters.

    Args:
      input_shape: shape of one example.
      num_classes: number of outputs.
      hidden: width of both hidden layers.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for an impossible width, empty examples or an unknown dtype.

    Source: https://arxiv.org/abs/2108.02117

    Example:
      >>> from fedwin import models
      >>> model = models.build("emnist_dense", (28, 28, 1), 62)
      >>> model.name, model.num_classes
      ('emnist_dense', 62)
    """
    check_size("emnist_dense", "hidden", hidden)
    module = MLP((hidden, hidden), num_classes, haiku_kernel, compute_dtype(dtype))
    return build_network("emnist_dense", module, input_shape, num_classes)


@MODELS.register("logistic", paper="ro2021fedjax", parameters="48,670", usual=((28, 28, 1), 62))
def logistic(input_shape, num_classes, *, dtype: str = "float32") -> Model:
    """FedJAX's logistic regression: 48,670 parameters (EMNIST-62), 172,900 (CIFAR-100 cut to 24x24x3).

    Args:
      input_shape: shape of one example.
      num_classes: number of outputs.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for empty examples or an unknown dtype.

    Source: https://arxiv.org/abs/2108.02117

    Example:
      >>> from fedwin import models
      >>> model = models.build("logistic", (28, 28, 1), 62)
      >>> model.name, model.num_classes
      ('logistic', 62)
    """
    module = MLP((), num_classes, haiku_kernel, compute_dtype(dtype))
    return build_network("logistic", module, input_shape, num_classes)
