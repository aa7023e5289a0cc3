"""Small networks without normalisation: logistic regression, perceptrons, and plain CNNs."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers

from fedwin.models.adapters import from_flax
from fedwin.models.conv import Conv, max_pool
from fedwin.models.layers import dropout, flatten, haiku_kernel, torch_conv, torch_dense
from fedwin.models.model import Model


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


class DropoutCNN(nn.Module):
    """conv 3x3 32, conv 3x3 64 (valid, ReLU), max-pool 2, dropout .25, dense 128, dropout .5, classifier."""

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


class PlainCNN(nn.Module):
    """(conv k x k, ReLU, max-pool 2) per width, (dense, ReLU) per hidden width, classifier; PyTorch's initialisation."""

    widths: tuple[int, ...]
    hidden: tuple[int, ...]
    num_classes: int
    kernel_size: int = 5
    padding: str = "VALID"
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        window = (self.kernel_size, self.kernel_size)
        for i, width in enumerate(self.widths):
            x = torch_conv(x, width, window, padding=self.padding, dtype=self.dtype, name=f"conv{i + 1}")
            x = nn.relu(max_pool(x, (2, 2)))
        x = flatten(x)
        for i, width in enumerate(self.hidden):
            x = nn.relu(torch_dense(x, width, dtype=self.dtype, name=f"dense{i + 1}"))
        return torch_dense(x, self.num_classes, dtype=self.dtype, name="classifier"), x


def digits_mlp(input_shape, num_classes, *, hidden: int = 64, dtype: str = "float32") -> Model:
    """One hidden layer for the 8x8 digits: 64 -> hidden -> 10, 4,810 parameters."""
    module = MLP((hidden,), num_classes, initializers.he_normal(), jnp.dtype(dtype))
    return from_flax(module, input_shape, num_classes, name="digits_mlp", dtype=dtype, lower=False)


def digits_cnn(input_shape, num_classes, *, dtype: str = "float32") -> Model:
    """conv 3x3 16, pool, conv 3x3 32, pool (same padding), dense 64, classifier: 13,706 parameters for 8x8x1."""
    module = PlainCNN((16, 32), (64,), num_classes, 3, "SAME", jnp.dtype(dtype))
    return from_flax(module, input_shape, num_classes, name="digits_cnn", dtype=dtype, lower=False)


def mlp(input_shape, num_classes, *, hidden: int = 200, layers: int = 2, dtype: str = "float32") -> Model:
    """784-200-200-10, McMahan et al.'s 2NN: 199,210 parameters. https://arxiv.org/abs/1602.05629"""
    module = MLP((hidden,) * layers, num_classes, initializers.glorot_uniform(), jnp.dtype(dtype))
    return from_flax(module, input_shape, num_classes, name="mlp", dtype=dtype, lower=False)


def pfl_cnn(input_shape, num_classes, *, dtype: str = "float32") -> Model:
    """pfl-research's CIFAR-10 benchmark CNN, 1,626,442 parameters. https://arxiv.org/abs/2404.06430"""
    module = DropoutCNN(num_classes, initializers.glorot_uniform(), jnp.dtype(dtype))
    return from_flax(module, input_shape, num_classes, name="pfl_cnn", dtype=dtype, lower=False)


def emnist_cnn(input_shape, num_classes, *, dtype: str = "float32") -> Model:
    """FedJAX's EMNIST CNN with dropout, 1,206,590 parameters for 62 classes. https://arxiv.org/abs/2003.00295"""
    module = DropoutCNN(num_classes, haiku_kernel, jnp.dtype(dtype))
    return from_flax(module, input_shape, num_classes, name="emnist_cnn", dtype=dtype, lower=False)


def emnist_dense(input_shape, num_classes, *, hidden: int = 200, dtype: str = "float32") -> Model:
    """FedJAX's dense net 784-200-200-62, 209,662 parameters. https://arxiv.org/abs/2108.02117"""
    module = MLP((hidden, hidden), num_classes, haiku_kernel, jnp.dtype(dtype))
    return from_flax(module, input_shape, num_classes, name="emnist_dense", dtype=dtype, lower=False)


def logistic(input_shape, num_classes, *, dtype: str = "float32") -> Model:
    """FedJAX's logistic regression: 48,670 parameters (EMNIST-62), 172,900 (CIFAR-100 cut to 24x24x3)."""
    module = MLP((), num_classes, haiku_kernel, jnp.dtype(dtype))
    return from_flax(module, input_shape, num_classes, name="logistic", dtype=dtype, lower=False)


def lenet5(input_shape, num_classes, *, dtype: str = "float32") -> Model:
    """LeNet-5 of Hsu et al. (2020): 797,962 / 815,332 parameters (10 / 100 classes). https://arxiv.org/abs/2003.08082"""
    module = PlainCNN((64, 64), (384, 192), num_classes, dtype=jnp.dtype(dtype))
    return from_flax(module, input_shape, num_classes, name="lenet5", dtype=dtype, lower=False)


def mcmahan_cnn(input_shape, num_classes, *, width: int | None = None, dtype: str = "float32") -> Model:
    """McMahan et al.'s CNN as IMA trains it. https://arxiv.org/abs/1602.05629, https://arxiv.org/abs/2305.07845

    Two 5x5 convolutions of `width` channels, dense 384, dense 128 (the feature), classifier: 772,682 parameters for
    CIFAR-10 (width 64), 274,026 for FMNIST (width 32). By default 64 for colour images, 32 for grey ones.
    """
    width = width or (64 if input_shape[-1] == 3 else 32)
    module = PlainCNN((width, width), (384, 128), num_classes, dtype=jnp.dtype(dtype))
    return from_flax(module, input_shape, num_classes, name="mcmahan_cnn", dtype=dtype, lower=False)
