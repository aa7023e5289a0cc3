"""ResNet-20 with GroupNorm for CIFAR (https://arxiv.org/abs/1512.03385, https://arxiv.org/abs/1803.08494)."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from fedwin.errors import UserError
from fedwin.models.convolution import Conv, global_avg_pool
from fedwin.models.layers import Norm, he_normal, torch_dense
from fedwin.models.model import MODELS, Model, compute_dtype
from fedwin.models.network_builder import build_network, check_groups

WIDTHS = (16, 32, 64)


class Block20(nn.Module):
    """ReLU(x' + norm(conv(ReLU(norm(conv(x)))))); x' = x, or the shortcut where the shape changes.

    Shortcut 'A' takes every second pixel and pads the channels equally on both sides (no parameters); 'B' is a
    1x1 convolution and a norm.

    Attributes:
      width: output channels.
      stride: stride of the first convolution.
      shortcut: 'A' or 'B'.
      groups: groups of GroupNorm.
      dtype: compute type.
    """

    width: int
    stride: int
    shortcut: str
    groups: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        options = dict(use_bias=False, kernel_init=he_normal, dtype=self.dtype)
        norm = lambda name: Norm("gn", self.groups, self.dtype, name=name)
        pad = ((1, 1), (1, 1))
        y = Conv(self.width, (3, 3), self.stride, pad, name="conv1", **options)(x)
        y = nn.relu(norm("norm1")(y, False))
        y = Conv(self.width, (3, 3), 1, pad, name="conv2", **options)(y)
        y = norm("norm2")(y, False)
        if self.stride != 1 or x.shape[-1] != self.width:
            if self.shortcut == "A":
                extra = self.width - x.shape[-1]
                x = x[:, :: self.stride, :: self.stride]
                x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (extra // 2, extra - extra // 2)))
            else:
                x = Conv(self.width, (1, 1), self.stride, "VALID", name="shortcut", **options)(x)
                x = norm("shortcut_norm")(x, False)
        return nn.relu(x + y)


class ResNet20(nn.Module):
    """Stem of 16 channels, three stages of three blocks at 16, 32, 64, global average pool, classifier.

    Attributes:
      num_classes: number of outputs.
      shortcut: 'A' or 'B', see Block20.
      groups: groups of GroupNorm.
      dtype: compute type.
    """

    num_classes: int
    shortcut: str = "A"
    groups: int = 2
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        x = Conv(16, (3, 3), 1, ((1, 1), (1, 1)), use_bias=False, kernel_init=he_normal, dtype=self.dtype, name="stem")(
            x
        )
        x = nn.relu(Norm("gn", self.groups, self.dtype, name="stem_norm")(x, False))
        for stage, width in enumerate(WIDTHS):
            for block in range(3):
                stride = 2 if stage and not block else 1
                name = f"stage{stage + 1}_block{block + 1}"
                x = Block20(width, stride, self.shortcut, self.groups, self.dtype, name=name)(x)
        x = global_avg_pool(x)
        return torch_dense(x, self.num_classes, kernel_init=he_normal, dtype=self.dtype, name="classifier"), x


@MODELS.register("resnet20", paper=("he2016deep", "wu2018group"), parameters="269,722", usual=((32, 32, 3), 10))
def resnet20(input_shape, num_classes, *, shortcut: str = "A", groups: int = 2, dtype: str = "float32") -> Model:
    """ResNet-20 with GN(2): 269,722 / 275,572 parameters (10 / 100 classes).

    Args:
      input_shape: shape of one image, [height, width, channels].
      num_classes: number of outputs.
      shortcut: where the shape changes: 'A', pixels and padding, or 'B', a convolution: 272,474 / 278,324 parameters.
      groups: groups of GroupNorm.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not images or are too small, or an impossible option.

    Source: https://arxiv.org/abs/1512.03385, https://arxiv.org/abs/1803.08494

    Example:
      >>> from fedwin import models
      >>> model = models.build("resnet20:shortcut=B", (32, 32, 3), 10)
      >>> model.name, model.num_classes
      ('resnet20', 10)
    """
    if shortcut not in ("A", "B"):
        raise UserError(f"resnet20: shortcut must be A or B, not '{shortcut}'.")
    check_groups("resnet20", groups, *WIDTHS)
    module = ResNet20(num_classes, shortcut, groups, compute_dtype(dtype))
    return build_network("resnet20", module, input_shape, num_classes, "images")
