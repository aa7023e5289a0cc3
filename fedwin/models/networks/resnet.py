"""ResNet-20 with GroupNorm for CIFAR; ResNet-18 with GroupNorm, BatchNorm, or both."""

from typing import Literal

import jax.numpy as jnp
from flax import linen as nn
from jax.typing import DTypeLike

from fedwin.errors import UserError
from fedwin.models.convolution import avg_pool, global_avg_pool, max_pool
from fedwin.models.layers import Initializer, Norm, flatten, he_normal, torch_conv, torch_dense, torch_kernel
from fedwin.models.network_builder import Width, check_groups, network
from fedwin.registry.ranges import PositiveInt

_SAME = ((1, 1), (1, 1))
# Channels of ResNet-20's stages, and of ResNet-18's as multiples of the first one's.
WIDTHS = (16, 32, 64)
STAGES = (1, 2, 4, 8)
# Norms of ResNet-18's stem, first in a block, second in a block, of the shortcut.
NORMS = {"gn": ("gn",) * 4, "bn": ("bn",) * 4, "mixed": ("bn", "bn", "gn", "gn")}


class Block(nn.Module):
    """ReLU(x' + norm2(conv(ReLU(norm1(conv(x)))))); x' = x, or the shortcut where the shape changes.

    Shortcut 'A' takes every second pixel and pads the channels equally on both sides (no parameters); 'B' is a
    1x1 convolution and a norm.

    Attributes:
      norms: norms of the stem, first in a block, second in a block, of the shortcut: 'gn' or 'bn'.
      bias: whether convolutions have biases.
    """

    width: int
    stride: int
    norms: tuple[str, ...] = NORMS["gn"]
    groups: int = 2
    bias: bool = False
    shortcut: str = "B"
    kernel_init: Initializer = torch_kernel
    dtype: DTypeLike = jnp.float32

    # What the block is in PyTorch.
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

    @nn.compact
    def __call__(self, x, train: bool, mask=None):
        _, first, second, side = self.norms
        options = dict(use_bias=self.bias, kernel_init=self.kernel_init, dtype=self.dtype)
        norm = lambda kind, name: Norm(kind, self.groups, self.dtype, name=name)
        y = torch_conv(x, self.width, (3, 3), self.stride, _SAME, name="conv1", **options)
        y = norm(first, "norm1")(y, train, mask, relu=True)
        y = torch_conv(y, self.width, (3, 3), 1, _SAME, name="conv2", **options)
        if self.stride != 1 or x.shape[-1] != self.width:
            if self.shortcut == "A":
                extra = self.width - x.shape[-1]
                x = x[:, :: self.stride, :: self.stride]
                x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (extra // 2, extra - extra // 2)))
            else:
                x = torch_conv(x, self.width, (1, 1), self.stride, "VALID", name="shortcut", **options)
                x = norm(side, "shortcut_norm")(x, train, mask)
        return norm(second, "norm2")(y, train, mask, x, True)

    def torch_modules(self):
        return "conv1", "norm1", "conv2", "norm2", "shortcut", "shortcut_norm"


class ResNet(nn.Module):
    """Stem, stages of blocks of `widths` channels, the first at stride 1, pool, [dense,] classifier.

    Attributes:
      widths: channels of the stages; the stem has those of the first one.
      blocks: number of blocks of a stage.
      norm: key of NORMS; bias and shortcut are those of Block.
      odd_pool: whether the last pool is the 3x3 pool of stride 2 of the thesis.
      hidden: width of a dense layer before the classifier, 0 for none.
      large: whether the stem is that of large images, 7x7 at stride 2 and a 3x3 max-pool of stride 2.
    """

    num_classes: int
    widths: tuple[int, ...]
    blocks: int
    norm: str = "gn"
    groups: int = 2
    bias: bool = False
    shortcut: str = "B"
    odd_pool: bool = False
    hidden: int = 0
    large: bool = False
    kernel_init: Initializer = torch_kernel
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x, train: bool, mask=None):
        norms, kernel_init = NORMS[self.norm], self.kernel_init
        window, stride, padding = ((7, 7), 2, ((3, 3), (3, 3))) if self.large else ((3, 3), 1, _SAME)
        options = dict(use_bias=self.bias, kernel_init=kernel_init, dtype=self.dtype)
        x = torch_conv(x, self.widths[0], window, stride, padding, name="stem", **options)
        x = Norm(norms[0], self.groups, self.dtype, name="stem_norm")(x, train, mask, relu=True)
        x = max_pool(x, (3, 3), (2, 2), _SAME) if self.large else x
        for stage, width in enumerate(self.widths):
            for block in range(self.blocks):
                of_block = (width, 2 if stage and not block else 1, norms, self.groups, self.bias, self.shortcut)
                x = Block(*of_block, kernel_init, self.dtype, name=block_name(stage, block))(x, train, mask)
        # The thesis's pool covers one 3x3 window of the 4x4 map: row 3 and column 3 do not reach the classifier.
        x = flatten(avg_pool(x, (3, 3), (2, 2))) if self.odd_pool else global_avg_pool(x)
        if self.hidden:
            x = torch_dense(x, self.hidden, dtype=self.dtype, name="dense")
        return torch_dense(x, self.num_classes, kernel_init=kernel_init, dtype=self.dtype, name="classifier"), x

    def torch_modules(self):
        blocks = (block_name(stage, block) for stage in range(len(self.widths)) for block in range(self.blocks))
        pool = "AvgPool2d(3, 2)" if self.odd_pool else "AdaptiveAvgPool2d(1)"
        stem = "stem", "stem_norm", "ReLU()", *["MaxPool2d(3, 2, 1)"] * self.large
        return *stem, *blocks, pool, "Flatten()", "dense", "classifier"


def block_name(stage: int, block: int) -> str:
    """Returns the name of a block's parameters."""
    return f"stage{stage + 1}_block{block + 1}"


@network("resnet20", "images", paper=("he2016deep", "wu2018group"), parameters="269,722", usual=((32, 32, 3), 10))
def resnet20(input_shape, num_classes, *, shortcut: Literal["A", "B"] = "A", groups: PositiveInt = 2):
    """ResNet-20 with GN(2): 269,722 / 275,572 parameters (10 / 100 classes).

    Args:
      shortcut: where the shape changes: 'A', pixels and padding, or 'B', a convolution: 272,474 / 278,324 parameters.
    """
    check_groups("resnet20", groups, *WIDTHS)
    return ResNet(num_classes, WIDTHS, 3, groups=groups, shortcut=shortcut, kernel_init=he_normal)


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
    wsm, widths = variant == "wsm", tuple(times * width for times in STAGES)
    norm = norm or ("mixed" if wsm else "gn")
    if norm != "bn":
        check_groups("resnet18", groups, *widths)
    if wsm and not all(25 <= side <= 32 for side in input_shape[:2]):
        raise UserError(f"resnet18:variant=wsm pools a 4x4 map: it needs images of 25 to 32 pixels, not {input_shape}.")
    hidden, large = 128 if variant == "ima" else 0, variant == "imagenet"
    return ResNet(num_classes, widths, 2, norm, groups, bias=wsm, odd_pool=wsm, hidden=hidden, large=large)
