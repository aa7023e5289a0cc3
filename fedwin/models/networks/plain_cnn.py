"""Plain CNNs, without normalization unless groups of GroupNorm are named."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from fedwin.models.convolution import max_pool
from fedwin.models.layers import GroupNorm, flatten, torch_conv, torch_dense
from fedwin.models.model import MODELS, Model, compute_dtype
from fedwin.models.network_builder import build_network, check_groups, check_size, check_sizes


class PlainCNN(nn.Module):
    """(conv k x k[, GN], ReLU, max-pool 2) per width, (dense, ReLU) per hidden width, classifier.

    PyTorch's initialization.

    Attributes:
      widths: channels of the convolutions.
      hidden: widths of the dense layers.
      num_classes: number of outputs.
      kernel_size: side k of the windows.
      padding: padding of the convolutions.
      dtype: compute type.
      groups: groups of GroupNorm; 0: no normalization.
    """

    widths: tuple[int, ...]
    hidden: tuple[int, ...]
    num_classes: int
    kernel_size: int = 5
    padding: str = "VALID"
    dtype: Any = jnp.float32
    groups: int = 0

    @nn.compact
    def __call__(self, x):
        window = (self.kernel_size, self.kernel_size)
        for i, width in enumerate(self.widths):
            x = torch_conv(x, width, window, padding=self.padding, dtype=self.dtype, name=f"conv{i + 1}")
            if self.groups:
                x = GroupNorm(self.groups, dtype=self.dtype, name=f"conv{i + 1}_norm")(x)
            x = nn.relu(max_pool(x, (2, 2)))
        x = flatten(x)
        for i, width in enumerate(self.hidden):
            x = nn.relu(torch_dense(x, width, dtype=self.dtype, name=f"dense{i + 1}"))
        return torch_dense(x, self.num_classes, dtype=self.dtype, name="classifier"), x


@MODELS.register("digits_cnn", parameters="13,706", usual=((8, 8, 1), 10))
def digits_cnn(input_shape, num_classes, *, dtype: str = "float32") -> Model:
    """conv 3x3 16, pool, conv 3x3 32, pool (same padding), dense 64, classifier: 13,706 parameters for 8x8x1.

    Args:
      input_shape: shape of one image, [height, width, channels].
      num_classes: number of outputs.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not images or are too small, or an unknown dtype.

    Example:
      >>> from fedwin import models
      >>> model = models.build("digits_cnn", (8, 8, 1), 10)
      >>> model.name, model.num_classes
      ('digits_cnn', 10)
    """
    module = PlainCNN((16, 32), (64,), num_classes, 3, "SAME", compute_dtype(dtype))
    return build_network("digits_cnn", module, input_shape, num_classes, "images")


MODELS.register("cnn", digits_cnn, parameters="13,706", usual=((8, 8, 1), 10))


@MODELS.register("lenet5", paper="hsu2020federated", parameters="797,962", usual=((32, 32, 3), 10))
def lenet5(
    input_shape,
    num_classes,
    *,
    channels: str = "64-64",
    dense: str = "384-192",
    groups: int = 0,
    dtype: str = "float32",
) -> Model:
    """LeNet-5 of Hsu et al. (2020): 797,962 / 815,332 parameters (10 / 100 classes).

    Args:
      input_shape: shape of one image, [height, width, channels].
      num_classes: number of outputs.
      channels: channels of the 5x5 convolutions, joined by '-'.
      dense: widths of the hidden dense layers, joined by '-'.
      groups: groups of GroupNorm after each convolution; 0: no normalization.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not images or are too small, an impossible width or option, or an unknown dtype.

    Source: https://arxiv.org/abs/2003.08082

    Example:
      >>> from fedwin import models
      >>> model = models.build("lenet5:channels=16-32,dense=64", (16, 16, 3), 10)
      >>> model.name, model.num_classes
      ('lenet5', 10)
    """
    widths, hidden = check_sizes("lenet5", "channels", channels), check_sizes("lenet5", "dense", dense)
    if groups:
        check_groups("lenet5", groups, *widths)
    module = PlainCNN(widths, hidden, num_classes, dtype=compute_dtype(dtype), groups=groups)
    return build_network("lenet5", module, input_shape, num_classes, "images")


@MODELS.register(
    "mcmahan_cnn",
    paper=("mcmahan2017communication", "zhou2023understanding"),
    parameters="772,682",
    usual=((32, 32, 3), 10),
)
def mcmahan_cnn(input_shape, num_classes, *, width: int | None = None, dtype: str = "float32") -> Model:
    """McMahan et al.'s CNN as IMA trains it.

    Two 5x5 convolutions of `width` channels, dense 384, dense 128 (the feature), classifier: 772,682 parameters for
    CIFAR-10 (width 64), 274,026 for FMNIST (width 32).

    Args:
      input_shape: shape of one image, [height, width, channels].
      num_classes: number of outputs.
      width: channels of both convolutions; by default 64 for color images, 32 for gray ones.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not images or are too small, an impossible width or an unknown dtype.

    Source: https://arxiv.org/abs/1602.05629, https://arxiv.org/abs/2305.07845

    Example:
      >>> from fedwin import models
      >>> model = models.build("mcmahan_cnn:width=32", (32, 32, 3), 10)
      >>> model.name, model.num_classes
      ('mcmahan_cnn', 10)
    """
    if width is None:
        width = 64 if tuple(input_shape)[-1:] == (3,) else 32
    check_size("mcmahan_cnn", "width", width)
    module = PlainCNN((width, width), (384, 128), num_classes, dtype=compute_dtype(dtype))
    return build_network("mcmahan_cnn", module, input_shape, num_classes, "images")
