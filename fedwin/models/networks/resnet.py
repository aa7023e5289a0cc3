"""ResNet-20 with GroupNorm for CIFAR; ResNet-18 with GroupNorm, BatchNorm, or both."""

from typing import Literal

import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from fedwin.errors import UserError
from fedwin.models.convolution import Conv, avg_pool, global_avg_pool, max_pool
from fedwin.models.layers import Norm, flatten, he_normal, torch_conv, torch_dense
from fedwin.models.network_builder import Width, check_groups, network
from fedwin.registry.ranges import PositiveInt

_SAME = ((1, 1), (1, 1))
# Channels of ResNet-20's stages, and of ResNet-18's as multiples of the first one's.
WIDTHS = (16, 32, 64)
STAGES = (1, 2, 4, 8)
# Norms of ResNet-18's stem, first in a block, second in a block, of the shortcut.
NORMS = {"gn": ("gn",) * 4, "bn": ("bn",) * 4, "mixed": ("bn", "bn", "gn", "gn")}


class TorchBlock:
    """What the residual blocks are in PyTorch."""

    torch_class = """class Block(nn.Sequential):
    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if hasattr(self, "shortcut"):
            x = self.shortcut_norm(self.shortcut(x))
        elif x.shape != y.shape:
            extra = y.shape[1] - x.shape[1]
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, extra // 2, extra - extra // 2))
        return F.relu(x + y)
"""

    def torch_modules(self):
        return "conv1", "norm1", "conv2", "norm2", "shortcut", "shortcut_norm"


class Block20(TorchBlock, nn.Module):
    """ReLU(x' + norm(conv(ReLU(norm(conv(x)))))); x' = x, or the shortcut where the shape changes.

    Shortcut 'A' takes every second pixel and pads the channels equally on both sides (no parameters); 'B' is a
    1x1 convolution and a norm.

    Attributes:
      shortcut: 'A' or 'B'.
    """

    width: int
    stride: int
    shortcut: str
    groups: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x):
        options = dict(use_bias=False, kernel_init=he_normal, dtype=self.dtype)
        norm = lambda name: Norm("gn", self.groups, self.dtype, name=name)
        y = Conv(self.width, (3, 3), self.stride, _SAME, name="conv1", **options)(x)
        y = norm("norm1")(y, False, relu=True)
        y = Conv(self.width, (3, 3), 1, _SAME, name="conv2", **options)(y)
        if self.stride != 1 or x.shape[-1] != self.width:
            if self.shortcut == "A":
                extra = self.width - x.shape[-1]
                x = x[:, :: self.stride, :: self.stride]
                x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (extra // 2, extra - extra // 2)))
            else:
                x = Conv(self.width, (1, 1), self.stride, "VALID", name="shortcut", **options)(x)
                x = norm("shortcut_norm")(x, False)
        return norm("norm2")(y, False, add=x, relu=True)


class ResNet20(nn.Module):
    """Stem of 16 channels, three stages of three blocks at 16, 32, 64, global average pool, classifier.

    Attributes:
      shortcut: 'A' or 'B', see Block20.
    """

    num_classes: int
    shortcut: str = "A"
    groups: int = 2
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x):
        x = Conv(16, (3, 3), 1, _SAME, use_bias=False, kernel_init=he_normal, dtype=self.dtype, name="stem")(x)
        x = Norm("gn", self.groups, self.dtype, name="stem_norm")(x, False, relu=True)
        for stage, width in enumerate(WIDTHS):
            for block in range(3):
                stride = 2 if stage and not block else 1
                name = f"stage{stage + 1}_block{block + 1}"
                x = Block20(width, stride, self.shortcut, self.groups, self.dtype, name=name)(x)
        x = global_avg_pool(x)
        return torch_dense(x, self.num_classes, kernel_init=he_normal, dtype=self.dtype, name="classifier"), x

    def torch_modules(self):
        blocks = (f"stage{stage + 1}_block{block + 1}" for stage in range(len(WIDTHS)) for block in range(3))
        return "stem", "stem_norm", "ReLU()", *blocks, "AdaptiveAvgPool2d(1)", "Flatten()", "classifier"


@network("resnet20", "images", paper=("he2016deep", "wu2018group"), parameters="269,722", usual=((32, 32, 3), 10))
def resnet20(input_shape, num_classes, *, shortcut: Literal["A", "B"] = "A", groups: PositiveInt = 2):
    """ResNet-20 with GN(2): 269,722 / 275,572 parameters (10 / 100 classes).

    Args:
      shortcut: where the shape changes: 'A', pixels and padding, or 'B', a convolution: 272,474 / 278,324 parameters.
    """
    check_groups("resnet20", groups, *WIDTHS)
    return ResNet20(num_classes, shortcut, groups)


class Block18(TorchBlock, nn.Module):
    """ReLU(x' + norm2(conv(ReLU(norm1(conv(x)))))); x' = x, or norm(conv 1x1(x)) where the shape changes.

    Attributes:
      norms: norms of the stem, first in a block, second in a block, of the shortcut: 'gn' or 'bn'.
    """

    width: int
    stride: int
    norms: tuple[str, ...]
    groups: int
    bias: bool
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x, train: bool, mask=None):
        _, first, second, side = self.norms
        options = dict(use_bias=self.bias, dtype=self.dtype)
        norm = lambda kind, name: Norm(kind, self.groups, self.dtype, name=name)
        y = torch_conv(x, self.width, (3, 3), self.stride, _SAME, name="conv1", **options)
        y = norm(first, "norm1")(y, train, mask, relu=True)
        y = torch_conv(y, self.width, (3, 3), 1, _SAME, name="conv2", **options)
        if self.stride != 1 or x.shape[-1] != self.width:
            x = torch_conv(x, self.width, (1, 1), self.stride, "VALID", name="shortcut", **options)
            x = norm(side, "shortcut_norm")(x, train, mask)
        return norm(second, "norm2")(y, train, mask, x, True)


class ResNet18(nn.Module):
    """Stem of 64 channels, four stages of two blocks at 64, 128, 256, 512, pool, [dense,] classifier.

    Attributes:
      odd_pool: whether the last pool is the 3x3 pool of stride 2 of the thesis.
      hidden: width of a dense layer before the classifier, 0 for none.
      width: channels of the first stage, in place of 64; the others scale with it.
      large: whether the stem is that of large images, 7x7 at stride 2 and a 3x3 max-pool of stride 2.
    """

    num_classes: int
    norm: str = "gn"
    groups: int = 2
    bias: bool = False
    odd_pool: bool = False
    hidden: int = 0
    width: int = 64
    large: bool = False
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x, train: bool, mask=None):
        norms = NORMS[self.norm]
        window, stride, padding = ((7, 7), 2, ((3, 3), (3, 3))) if self.large else ((3, 3), 1, _SAME)
        x = torch_conv(x, self.width, window, stride, padding, use_bias=self.bias, dtype=self.dtype, name="stem")
        x = Norm(norms[0], self.groups, self.dtype, name="stem_norm")(x, train, mask, relu=True)
        x = max_pool(x, (3, 3), (2, 2), _SAME) if self.large else x
        for stage, times in enumerate(STAGES):
            for block in range(2):
                stride = 2 if stage and not block else 1
                name = f"stage{stage + 1}_block{block + 1}"
                layer = Block18(times * self.width, stride, norms, self.groups, self.bias, self.dtype, name=name)
                x = layer(x, train, mask)
        # The thesis's pool covers one 3x3 window of the 4x4 map: row 3 and column 3 do not reach the classifier.
        x = flatten(avg_pool(x, (3, 3), (2, 2))) if self.odd_pool else global_avg_pool(x)
        if self.hidden:
            x = torch_dense(x, self.hidden, dtype=self.dtype, name="dense")
        return torch_dense(x, self.num_classes, dtype=self.dtype, name="classifier"), x

    def torch_modules(self):
        blocks = (f"stage{stage + 1}_block{block + 1}" for stage in range(len(STAGES)) for block in range(2))
        pool = "AvgPool2d(3, 2)" if self.odd_pool else "AdaptiveAvgPool2d(1)"
        stem = "stem", "stem_norm", "ReLU()", *["MaxPool2d(3, 2, 1)"] * self.large
        return *stem, *blocks, pool, "Flatten()", "dense", "classifier"


@network(
    "resnet18",
    "images",
    label="resnet18_{variant}",
    paper=("he2016deep", "zhou2023understanding", "legate2023reweighted"),
    parameters="11,235,786",
    usual=((32, 32, 3), 10),
)
def resnet18(
    input_shape,
    num_classes,
    *,
    variant: Literal["ima", "plain", "wsm", "imagenet"] = "ima",
    norm: Literal["", "gn", "bn", "mixed"] = "",
    groups: PositiveInt = 2,
    width: Width = 64,
):
    """ResNet-18 for 32x32 images, or with the stem of larger ones.

    Variants, with their parameters for 10 / 100 classes:

        ima     no convolution biases, GN, dense 512 -> 128 before the classifier: 11,235,786 / 11,247,396
        plain   the same without the dense layer: 11,173,962 / 11,220,132
        wsm     convolution biases and the 3x3 pool of stride 2 of the thesis; norm 'mixed' has BN in the stem and first
                in a block, GN otherwise: 11,178,762 / 11,224,932, and 3,968 running statistics
        imagenet  plain with the published stem, 7x7 at stride 2 and a 3x3 max-pool of stride 2, as FedML and FLUTE
                train it on CIFAR-100: 11,181,642 / 11,227,812

    Args:
      variant: ima (https://arxiv.org/abs/2305.07845), plain, wsm (https://arxiv.org/abs/2304.05260) or imagenet.
      norm: gn, bn or mixed; by default gn, for wsm mixed.
      width: channels of the first stage; the others have 2, 4 and 8 times as many.

    Raises:
      UserError: when `wsm` would not pool a 4x4 map.
    """
    wsm = variant == "wsm"
    norm = norm or ("mixed" if wsm else "gn")
    if norm != "bn":
        check_groups("resnet18", groups, *(times * width for times in STAGES))
    if wsm and not all(25 <= side <= 32 for side in input_shape[:2]):
        raise UserError(f"resnet18:variant=wsm pools a 4x4 map: it needs images of 25 to 32 pixels, not {input_shape}.")
    hidden = 128 if variant == "ima" else 0
    return ResNet18(num_classes, norm, groups, wsm, wsm, hidden, width, variant == "imagenet")
