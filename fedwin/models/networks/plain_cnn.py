"""Plain CNNs: convolutions and pools one after another, with or without GroupNorm or dropout."""

import functools
from typing import Literal, NamedTuple

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers
from jax.typing import DTypeLike

from fedwin.models.convolution import Conv, max_pool
from fedwin.models.layers import Dense, GroupNorm, Initializer, dropout, flatten, haiku_kernel, torch_conv, torch_dense
from fedwin.models.model import MODELS
from fedwin.models.network_builder import Width, check_groups, network, widths_of
from fedwin.registry.ranges import NonNegativeInt, PositiveInt


class ConvLayer(NamedTuple):
    """A convolution of a Stack.

    Attributes:
      pad: pixels of zeros on each side.
      pool: side of the max-pool's window, whose stride is 2; 0: no pool.
    """

    width: int
    size: int = 3
    stride: int = 1
    pad: int = 1
    pool: int = 0


class DenseLayer(NamedTuple):
    """A dense layer of a Stack."""

    width: int
    norm: bool = False
    relu: bool = True


class Stack(nn.Module):
    """(conv[, GN], ReLU[, max-pool]) per entry of `convs`, (dense[, GN][, ReLU]) per entry of `hidden`, classifier.

    PyTorch's initialization.

    Attributes:
      groups: groups of GroupNorm; 0: no normalization of convolutions.
      adaptive: side that the feature map is averaged to before flattening, 0 for none.
    """

    convs: tuple[ConvLayer, ...]
    hidden: tuple[DenseLayer, ...]
    num_classes: int
    groups: int = 0
    adaptive: int = 0
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x):
        norm = lambda name: GroupNorm(self.groups, dtype=self.dtype, name=name)
        for i, conv in enumerate(self.convs, start=1):
            edges = ((conv.pad, conv.pad), (conv.pad, conv.pad))
            x = torch_conv(x, conv.width, (conv.size, conv.size), conv.stride, edges, dtype=self.dtype, name=f"conv{i}")
            x = norm(f"conv{i}_norm")(x) if self.groups else x
            if conv.pool:
                x = max_pool(x, (conv.pool, conv.pool), (2, 2))
            x = nn.relu(x)  # after the pool: max and ReLU commute
        if self.adaptive:
            x = adaptive_avg_pool(x, self.adaptive)
        x = flatten(x)
        for i, dense in enumerate(self.hidden, start=1):
            x = torch_dense(x, dense.width, dtype=self.dtype, name=f"dense{i}")
            x = norm(f"dense{i}_norm")(x) if dense.norm else x
            x = nn.relu(x) if dense.relu else x
        return torch_dense(x, self.num_classes, dtype=self.dtype, name="classifier"), x

    def torch_modules(self):
        steps: list[str] = []
        for i, conv in enumerate(self.convs, start=1):
            steps += [f"conv{i}", f"conv{i}_norm", *[f"MaxPool2d({conv.pool}, 2)"] * bool(conv.pool), "ReLU()"]
        steps += [f"AdaptiveAvgPool2d({self.adaptive})"] * bool(self.adaptive) + ["Flatten()"]
        for i, dense in enumerate(self.hidden, start=1):
            steps += [f"dense{i}", f"dense{i}_norm"] + ["ReLU()"] * dense.relu
        return *steps, "classifier"


def pooled_cnn(widths, hidden, num_classes, size=5, pad=0, groups=0) -> Stack:
    """Returns (conv size x size[, GN], max-pool 2, ReLU) per width, (dense, ReLU) per hidden width, classifier."""
    convs = tuple(ConvLayer(width, size, pad=pad, pool=2) for width in widths)
    return Stack(convs, tuple(map(DenseLayer, hidden)), num_classes, groups)


def adaptive_avg_pool(x, side: int):
    """Returns PyTorch's AdaptiveAvgPool2d of x [B, H, W, C], [B, side, side, C].

    Cell i averages rows floor(i n / side) to ceil((i + 1) n / side) - 1; with H = W = side, x is returned unchanged.
    """
    for axis in (1, 2):
        n = x.shape[axis]
        if n == side:
            continue
        cells = [(i * n // side, -(-(i + 1) * n // side)) for i in range(side)]
        x = jnp.stack([jnp.take(x, jnp.arange(lo, hi), axis=axis).mean(axis) for lo, hi in cells], axis=axis)
    return x


@network("digits_cnn", "images", parameters="13,706", usual=((8, 8, 1), 10))
def digits_cnn(input_shape, num_classes):
    """conv 3x3 16, pool, conv 3x3 32, pool (same padding), dense 64, classifier."""
    return pooled_cnn((16, 32), (64,), num_classes, size=3, pad=1)


MODELS.register("cnn", digits_cnn, parameters="13,706", usual=((8, 8, 1), 10))


@network("lenet5", "images", paper="hsu2020federated", parameters="797,962", usual=((32, 32, 3), 10))
def lenet5(input_shape, num_classes, *, channels: str = "64-64", dense: str = "384-192", groups: NonNegativeInt = 0):
    """LeNet-5 of Hsu et al. (2020): 797,962 / 815,332 parameters (10 / 100 classes).

    Args:
      channels: channels of the 5x5 convolutions, joined by '-'.
      dense: widths of the hidden dense layers, joined by '-'.
      groups: groups of GroupNorm after each convolution; 0: no normalization.
    """
    widths, hidden = widths_of("lenet5", "channels", channels), widths_of("lenet5", "dense", dense)
    if groups:
        check_groups("lenet5", groups, *widths)
    return pooled_cnn(widths, hidden, num_classes, groups=groups)


@network(
    "mcmahan_cnn",
    "images",
    paper=("mcmahan2017communication", "zhou2023understanding"),
    parameters="772,682",
    usual=((32, 32, 3), 10),
)
def mcmahan_cnn(input_shape, num_classes, *, width: Width | None = None):
    """McMahan et al.'s CNN as IMA trains it.

    Two 5x5 convolutions of `width` channels, dense 384, dense 128 (the feature), classifier: 772,682 parameters for
    CIFAR-10 (width 64), 274,026 for FMNIST (width 32).

    Args:
      width: channels of both convolutions; by default 64 for color images, 32 for gray ones.
    """
    if width is None:
        width = 64 if input_shape[-1] == 3 else 32
    return pooled_cnn((width, width), (384, 128), num_classes)


class DropoutCNN(nn.Module):
    """conv 3x3 32, conv 3x3 64 (valid, ReLU), max-pool 2, dropout .25, dense 128, dropout .5, classifier."""

    num_classes: int
    kernel_init: Initializer = haiku_kernel
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x, train: bool):
        conv = functools.partial(Conv, padding="VALID", kernel_init=self.kernel_init, dtype=self.dtype)
        dense = functools.partial(Dense, kernel_init=self.kernel_init, dtype=self.dtype)
        x = nn.relu(conv(32, (3, 3), name="conv1")(x))
        # max and ReLU commute, so the ReLU runs on a quarter of the map.
        x = nn.relu(max_pool(conv(64, (3, 3), name="conv2")(x), (2, 2)))
        key = self.make_rng("dropout") if train else None
        x = flatten(dropout(x, 0.25, key, train))
        x = nn.relu(dense(128, name="dense")(x))
        x = dropout(x, 0.5, self.make_rng("dropout") if train else None, train)
        return dense(self.num_classes, name="classifier")(x), x

    def torch_modules(self):
        features = "conv1", "ReLU()", "conv2", "MaxPool2d(2)", "ReLU()", "Dropout(0.25)"
        return *features, "Flatten()", "dense", "ReLU()", "Dropout(0.5)", "classifier"


@network("pfl_cnn", "images", paper="granqvist2024pfl", parameters="1,626,442", usual=((32, 32, 3), 10))
def pfl_cnn(input_shape, num_classes):
    """pfl-research's CIFAR-10 benchmark CNN with dropout, Glorot initialization."""
    return DropoutCNN(num_classes, initializers.glorot_uniform())


@network("emnist_cnn", "images", paper="reddi2021adaptive", parameters="1,206,590", usual=((28, 28, 1), 62))
def emnist_cnn(input_shape, num_classes):
    """FedJAX's EMNIST CNN with dropout, haiku's initialization."""
    return DropoutCNN(num_classes)


@network(
    "vgg11",
    "images",
    paper=("simonyan2015very", "zhou2023understanding"),
    parameters="9,292,938",
    usual=((32, 32, 3), 10),
)
def vgg11(input_shape, num_classes, *, groups: PositiveInt = 2):
    """VGG11 with GN for 32x32 images: 9,292,938 / 9,304,548 parameters (10 / 100 classes)."""
    widths = (64, 128, 256, 256, 512, 512, 512, 512)
    pools = (2, 2, 0, 2, 0, 2, 0, 2)
    check_groups("vgg11", groups, *widths)
    convs = tuple(ConvLayer(width, pool=pool) for width, pool in zip(widths, pools))
    return Stack(convs, (DenseLayer(128, relu=False),), num_classes, groups)


@network(
    "alexnet",
    "images",
    label="alexnet_{variant}",
    paper="zhou2023understanding",
    parameters="12,438,599",
    usual=((224, 224, 3), 7),
)
def alexnet(input_shape, num_classes, *, variant: Literal["code", "paper"] = "code", groups: PositiveInt = 32):
    """AlexNet with GN for 224x224 images, no dropout.

    Args:
      variant: 'code' (released code): 9,216 -> 1,024 -> 512 -> classes, 12,438,599 parameters for 7 classes; 'paper'
        (the paper's table): 9,216 -> 4,096 -> 4,096 -> 512 -> classes, 59,107,399.
    """
    hidden = {"code": (1024, 512), "paper": (4096, 4096, 512)}[variant]
    convs = (
        ConvLayer(64, 11, 4, 2, pool=3),
        ConvLayer(192, 5, 1, 2, pool=3),
        ConvLayer(384),
        ConvLayer(256),
        ConvLayer(256, pool=3),
    )
    check_groups("alexnet", groups, *(conv.width for conv in convs))
    return Stack(convs, tuple(map(DenseLayer, hidden)), num_classes, groups, adaptive=6)


@network(
    "digit5_cnn",
    "images",
    label="digit5_cnn_{variant}",
    paper="zhou2023understanding",
    parameters="13,427,786",
    usual=((28, 28, 3), 10),
)
def digit5_cnn(input_shape, num_classes, *, variant: Literal["A", "B"] = "A", groups: PositiveInt = 2):
    """Digit-Five CNN with GN for 28x28x3 images.

    Args:
      variant: 'A' (paper): two pools, dense 2,048 and 128 with GN and ReLU, 13,427,786 parameters; 'B' (released code):
        three pools, dense 384 and 128 with ReLU, 806,090.
    """
    last, norm, width = (2, False, 384) if variant == "B" else (0, True, 2048)
    convs = (ConvLayer(64, 5, 1, 2, 2), ConvLayer(64, 5, 1, 2, 2), ConvLayer(128, 5, 1, 2, last))
    check_groups("digit5_cnn", groups, *(conv.width for conv in convs))
    return Stack(convs, (DenseLayer(width, norm), DenseLayer(128, norm)), num_classes, groups)
