"""A CNN with dropout, with pfl-research's and with FedJAX's initialization."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers

from fedwin.models.convolution import Conv, max_pool
from fedwin.models.layers import dropout, flatten, haiku_kernel
from fedwin.models.model import MODELS, Model, compute_dtype
from fedwin.models.network_builder import build_network


class DropoutCNN(nn.Module):
    """conv 3x3 32, conv 3x3 64 (valid, ReLU), max-pool 2, dropout .25, dense 128, dropout .5, classifier.

    Attributes:
      num_classes: number of outputs.
      kernel_init: initializer of all kernels.
      dtype: compute type.
    """

    num_classes: int
    kernel_init: Any = haiku_kernel
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x, train: bool):
        options = dict(kernel_init=self.kernel_init, dtype=self.dtype)
        x = nn.relu(Conv(32, (3, 3), padding="VALID", name="conv1", **options)(x))
        # max and ReLU commute, so the ReLU runs on a quarter of the map.
        x = nn.relu(max_pool(Conv(64, (3, 3), padding="VALID", name="conv2", **options)(x), (2, 2)))
        key = self.make_rng("dropout") if train else None
        x = flatten(dropout(x, 0.25, key, train))
        x = nn.relu(nn.Dense(128, name="dense", **options)(x))
        x = dropout(x, 0.5, self.make_rng("dropout") if train else None, train)
        return nn.Dense(self.num_classes, name="classifier", **options)(x), x


@MODELS.register("pfl_cnn", paper="granqvist2024pfl", parameters="1,626,442", usual=((32, 32, 3), 10))
def pfl_cnn(input_shape, num_classes, *, dtype: str = "float32") -> Model:
    """pfl-research's CIFAR-10 benchmark CNN, 1,626,442 parameters.

    DropoutCNN with Glorot-uniform initialization.

    Args:
      input_shape: shape of one image, [height, width, channels].
      num_classes: number of outputs.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not images or are too small, or an unknown dtype.

    Source: https://arxiv.org/abs/2404.06430

    Example:
      >>> from fedwin import models
      >>> model = models.build("pfl_cnn", (32, 32, 3), 10)
      >>> model.name, model.num_classes
      ('pfl_cnn', 10)
    """
    module = DropoutCNN(num_classes, initializers.glorot_uniform(), compute_dtype(dtype))
    return build_network("pfl_cnn", module, input_shape, num_classes, "images")


@MODELS.register("emnist_cnn", paper="reddi2021adaptive", parameters="1,206,590", usual=((28, 28, 1), 62))
def emnist_cnn(input_shape, num_classes, *, dtype: str = "float32") -> Model:
    """FedJAX's EMNIST CNN with dropout, 1,206,590 parameters for 62 classes.

    DropoutCNN with haiku's initialization.

    Args:
      input_shape: shape of one image, [height, width, channels].
      num_classes: number of outputs.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not images or are too small, or an unknown dtype.

    Source: https://arxiv.org/abs/2003.00295

    Example:
      >>> from fedwin import models
      >>> model = models.build("emnist_cnn", (28, 28, 1), 62)
      >>> model.name, model.num_classes
      ('emnist_cnn', 62)
    """
    module = DropoutCNN(num_classes, haiku_kernel, compute_dtype(dtype))
    return build_network("emnist_cnn", module, input_shape, num_classes, "images")
