"""Plain deep CNNs with GroupNorm, as IMA trains them (https://arxiv.org/abs/2305.07845)."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from fedwin.errors import UserError
from fedwin.models.convolution import avg_pool, max_pool
from fedwin.models.layers import GroupNorm, flatten, torch_conv, torch_dense
from fedwin.models.model import MODELS, Model, compute_dtype
from fedwin.models.network_builder import build_network, check_groups


class Stack(nn.Module):
    """(conv, GN, ReLU[, max-pool]) per entry of `convs`, then (dense[, GN][, ReLU]) per entry of `hidden`, classifier.

    Attributes:
      convs: (width, kernel size, stride, padding, pool window or 0, pool stride) per convolution.
      hidden: (width, whether GN follows, whether ReLU follows) per dense layer.
      num_classes: number of outputs.
      groups: groups of GroupNorm.
      adaptive: side that the feature map is averaged to before flattening, 0 for none.
      dtype: compute type.
    """

    convs: tuple[tuple[int, ...], ...]
    hidden: tuple[tuple[int, bool, bool], ...]
    num_classes: int
    groups: int = 2
    adaptive: int = 0
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        norm = lambda name: GroupNorm(self.groups, dtype=self.dtype, name=name)
        for i, (width, size, stride, pad, pool, pool_stride) in enumerate(self.convs, start=1):
            edges = ((pad, pad), (pad, pad))
            x = torch_conv(x, width, (size, size), stride, edges, dtype=self.dtype, name=f"conv{i}")
            x = norm(f"conv{i}_norm")(x)
            if pool:
                x = max_pool(x, (pool, pool), (pool_stride, pool_stride))
            x = nn.relu(x)  # after the pool: max and ReLU commute
        if self.adaptive:
            x = adaptive_avg_pool(x, self.adaptive)
        x = flatten(x)
        for i, (width, normed, active) in enumerate(self.hidden, start=1):
            x = torch_dense(x, width, dtype=self.dtype, name=f"dense{i}")
            x = norm(f"dense{i}_norm")(x) if normed else x
            x = nn.relu(x) if active else x
        return torch_dense(x, self.num_classes, dtype=self.dtype, name="classifier"), x


def adaptive_avg_pool(x, side: int):
    """Returns PyTorch's AdaptiveAvgPool2d: cell i averages rows floor(i n / side) to ceil((i + 1) n / side) - 1.

    Args:
      x: feature maps, [B, H, W, C]; returned unchanged if H = W = side.
      side: side of the result.

    Returns:
      [B, side, side, C].
    """
    for axis in (1, 2):
        n = x.shape[axis]
        if n == side:
            continue
        if n % side == 0:
            window = [1, 1]
            window[axis - 1] = n // side
            x = avg_pool(x, tuple(window))
            continue
        cells = [(i * n // side, -(-(i + 1) * n // side)) for i in range(side)]
        x = jnp.stack([jnp.take(x, jnp.arange(lo, hi), axis=axis).mean(axis) for lo, hi in cells], axis=axis)
    return x


@MODELS.register(
    "vgg11", paper=("simonyan2015very", "zhou2023understanding"), parameters="9,292,938", usual=((32, 32, 3), 10)
)
def vgg11(input_shape, num_classes, *, groups: int = 2, dtype: str = "float32") -> Model:
    """VGG11 with GN for 32x32 images: 9,292,938 / 9,304,548 parameters (10 / 100 classes).

    Args:
      input_shape: shape of one image, [height, width, channels].
      num_classes: number of outputs.
      groups: groups of GroupNorm.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not images or are too small, or an impossible option.

    Source: https://arxiv.org/abs/1409.1556

    Example:
      >>> from fedwin import models
      >>> model = models.build("vgg11", (32, 32, 3), 10)
      >>> model.name, model.num_classes
      ('vgg11', 10)
    """
    pooled, unpooled = (2, 2), (0, 0)
    widths = (64, 128, 256, 256, 512, 512, 512, 512)
    pools = (pooled, pooled, unpooled, pooled, unpooled, pooled, unpooled, pooled)
    check_groups("vgg11", groups, *widths)
    convs = tuple((width, 3, 1, 1, *pool) for width, pool in zip(widths, pools))
    module = Stack(convs, ((128, False, False),), num_classes, groups, dtype=compute_dtype(dtype))
    return build_network("vgg11", module, input_shape, num_classes, "images")


@MODELS.register("alexnet", paper="zhou2023understanding", parameters="12,438,599", usual=((224, 224, 3), 7))
def alexnet(input_shape, num_classes, *, variant: str = "code", groups: int = 32, dtype: str = "float32") -> Model:
    """AlexNet with GN for 224x224 images, no dropout.

    Args:
      input_shape: shape of one image, [height, width, channels].
      num_classes: number of outputs.
      variant: 'code' (released code): 9,216 -> 1,024 -> 512 -> classes, 12,438,599 parameters for 7 classes; 'paper'
        (the paper's table): 9,216 -> 4,096 -> 4,096 -> 512 -> classes, 59,107,399.
      groups: groups of GroupNorm.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not images or are too small, or an impossible option.

    Source: https://arxiv.org/abs/2305.07845

    Example:
      >>> from fedwin import models
      >>> model = models.build("alexnet:variant=code", (224, 224, 3), 7)
      >>> model.name, model.num_classes
      ('alexnet_code', 7)
    """
    hidden = {"code": (1024, 512), "paper": (4096, 4096, 512)}.get(variant)
    if hidden is None:
        raise UserError(f"alexnet: variant must be code or paper, not '{variant}'.")
    convs = (
        (64, 11, 4, 2, 3, 2),
        (192, 5, 1, 2, 3, 2),
        (384, 3, 1, 1, 0, 0),
        (256, 3, 1, 1, 0, 0),
        (256, 3, 1, 1, 3, 2),
    )
    check_groups("alexnet", groups, *(conv[0] for conv in convs))
    layers = tuple((width, False, True) for width in hidden)
    module = Stack(convs, layers, num_classes, groups, adaptive=6, dtype=compute_dtype(dtype))
    return build_network(f"alexnet_{variant}", module, input_shape, num_classes, "images")


@MODELS.register("digit5_cnn", paper="zhou2023understanding", parameters="13,427,786", usual=((28, 28, 3), 10))
def digit5_cnn(input_shape, num_classes, *, variant: str = "A", groups: int = 2, dtype: str = "float32") -> Model:
    """Digit-Five CNN with GN for 28x28x3 images.

    Args:
      input_shape: shape of one image, [height, width, channels].
      num_classes: number of outputs.
      variant: 'A' (paper): two pools, dense 2,048 and 128 with GN and ReLU, 13,427,786 parameters; 'B' (released code):
        three pools, dense 384 and 128 with ReLU, 806,090.
      groups: groups of GroupNorm.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not images or are too small, or an impossible option.

    Source: https://arxiv.org/abs/2305.07845

    Example:
      >>> from fedwin import models
      >>> model = models.build("digit5_cnn:variant=B", (28, 28, 3), 10)
      >>> model.name, model.num_classes
      ('digit5_cnn_B', 10)
    """
    if variant not in ("A", "B"):
        raise UserError(f"digit5_cnn: variant must be A or B, not '{variant}'.")
    last = (2, 2) if variant == "B" else (0, 0)
    convs = ((64, 5, 1, 2, 2, 2), (64, 5, 1, 2, 2, 2), (128, 5, 1, 2, *last))
    hidden = ((384, False, True), (128, False, True)) if variant == "B" else ((2048, True, True), (128, True, True))
    check_groups("digit5_cnn", groups, *(conv[0] for conv in convs))
    module = Stack(convs, hidden, num_classes, groups, dtype=compute_dtype(dtype))
    return build_network(f"digit5_cnn_{variant}", module, input_shape, num_classes, "images")
