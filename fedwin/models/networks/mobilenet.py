"""MobileNetV2 with GroupNorm."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util
from jax.nn import initializers
from jax.typing import DTypeLike

from fedwin.errors import UserError
from fedwin.models.adapters.classifier import subtree
from fedwin.models.convolution import Conv, global_avg_pool
from fedwin.models.interchange import array_files
from fedwin.models.interchange.layers import recorded
from fedwin.models.layers import Dense, GroupNorm, he_normal
from fedwin.models.model import MODELS, Model, compute_dtype
from fedwin.models.network_builder import build_network, check_examples, check_groups
from fedwin.registry.ranges import PositiveInt

# expansion, channels, repeats, stride of the first repeat
ROWS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_SAME = ((1, 1), (1, 1))
_fan_out = initializers.variance_scaling(2.0, "fan_out", "normal")


class InvertedResidual(nn.Module):
    """x [+] GN(1x1(ReLU6(GN(depthwise 3x3(ReLU6(GN(1x1 expand(x))))))); the sum where the shape does not change."""

    expansion: int
    width: int
    stride: int
    groups: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x):
        channels = x.shape[-1]
        inner = channels * self.expansion
        options = dict(use_bias=False, dtype=self.dtype)
        norm = lambda name: GroupNorm(self.groups, dtype=self.dtype, name=name)
        y = x
        if self.expansion != 1:
            y = Conv(inner, (1, 1), 1, "VALID", kernel_init=_fan_out, name="expand", **options)(y)
            y = nn.relu6(norm("expand_norm")(y))
        # Each channel sees one: he_normal's fan is the window.
        alone = dict(feature_group_count=inner, kernel_init=he_normal, name="depthwise", **options)
        y = Conv(inner, (3, 3), self.stride, _SAME, **alone)(y)
        y = nn.relu6(norm("depthwise_norm")(y))
        y = Conv(self.width, (1, 1), 1, "VALID", kernel_init=_fan_out, name="project", **options)(y)
        y = norm("project_norm")(y)
        return x + y if self.stride == 1 and channels == self.width else y


class MobileNetV2(nn.Module):
    """Stem 32 at stride 2, seventeen inverted residuals, 1x1 to 1,280, global average pool, classifier; no biases."""

    num_classes: int
    groups: int = 8
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x):
        options = dict(use_bias=False, dtype=self.dtype, kernel_init=_fan_out)
        norm = lambda name: GroupNorm(self.groups, dtype=self.dtype, name=name)
        x = nn.relu6(norm("stem_norm")(Conv(32, (3, 3), 2, _SAME, name="stem", **options)(x)))
        number = 0
        for expansion, width, repeats, stride in ROWS:
            for repeat in range(repeats):
                number += 1
                step = stride if repeat == 0 else 1
                x = InvertedResidual(expansion, width, step, self.groups, self.dtype, name=f"block{number}")(x)
        x = nn.relu6(norm("last_norm")(Conv(1280, (1, 1), 1, "VALID", name="last", **options)(x)))
        x = global_avg_pool(x)
        options = dict(dtype=self.dtype, kernel_init=initializers.normal(0.01))
        return Dense(self.num_classes, name="classifier", **options)(x), x


def kernel_shapes(model: Model, input_shape) -> dict[tuple[str, ...], jax.ShapeDtypeStruct]:
    """Returns path in params -> shape of the 52 convolution kernels, in network order."""
    params = jax.eval_shape(model.init, jax.random.key(0)).params
    layers, _ = recorded(model, input_shape, jnp.float32)
    paths = [(*name.split("."), "kernel") for name, layer in layers.items() if layer.kind == "convolution"]
    return {path: subtree(params, path) for path in paths}


def read_weights(path: str, shapes: dict[tuple[str, ...], jax.ShapeDtypeStruct]) -> dict[tuple[str, ...], np.ndarray]:
    """Reads the convolution kernels of a MobileNetV2 from an .npz file.

    The file contains either every kernel under its path here ('block1/depthwise/kernel', HWIO), or PyTorch's state
    dictionary as arrays (the 4-dimensional ones in file order are the convolutions, OIHW). Norms are not read: GN
    starts with scale 1, shift 0.

    Returns:
      Path in params -> kernel, float32.

    Raises:
      UserError: for a missing or unreadable file, a missing kernel or a wrong shape.
    """
    arrays = array_files.read(path).arrays
    by_path = {name: arrays["/".join(name)] for name in shapes if "/".join(name) in arrays}
    if len(by_path) < len(shapes):
        kernels = [a for a in arrays.values() if a.ndim == 4]
        if by_path or len(kernels) != len(shapes):
            missing = next("/".join(name) for name in shapes if name not in by_path)
            raise UserError(
                f"mobilenetv2: '{path}' has {len(kernels)} convolution kernels, {len(shapes)} needed; '{missing}' is "
                "missing."
            )
        by_path = {name: kernel.transpose(2, 3, 1, 0) for name, kernel in zip(shapes, kernels)}
    for name, kernel in by_path.items():
        expected = shapes[name]
        if kernel.shape != expected.shape:
            raise UserError(f"mobilenetv2: '{path}': {'/'.join(name)} has shape {kernel.shape}, not {expected.shape}.")
        if not np.isfinite(kernel).all():
            raise UserError(f"mobilenetv2: '{path}': {'/'.join(name)} contains a value that is not finite.")
    return {name: np.asarray(kernel, np.float32) for name, kernel in by_path.items()}


def with_kernels(params, kernels):
    """Returns params with kernels replaced."""
    flat = traverse_util.flatten_dict(params)
    flat |= {name: jnp.asarray(kernel, flat[name].dtype) for name, kernel in kernels.items()}
    return traverse_util.unflatten_dict(flat)


@MODELS.register(
    "mobilenetv2",
    paper=("sandler2018mobilenetv2", "hsu2020federated"),
    parameters="4,821,740",
    usual=((224, 224, 3), 2028),
)
def mobilenetv2(
    input_shape, num_classes, *, groups: PositiveInt = 8, weights: str = "", dtype: str = "float32"
) -> Model:
    """MobileNetV2 with GN(8): 4,821,740 parameters for Landmarks (2,028), 3,764,915 for iNaturalist (1,203).

    Args:
      weights: an .npz file with ImageNet's convolution kernels (read_weights). Without one the initialization is random
        and the model's name ends in '_from_scratch'.

    Raises:
      UserError: when the weights cannot be read.
    """
    check_examples("mobilenetv2", "images", input_shape, num_classes)
    check_groups("mobilenetv2", groups, 32, *(row[1] for row in ROWS))
    name = "mobilenetv2" if weights else "mobilenetv2_from_scratch"
    model = build_network(name, MobileNetV2(num_classes, groups, compute_dtype(dtype)), input_shape, num_classes)
    if not weights:
        return model
    kernels = read_weights(weights, kernel_shapes(model, input_shape))

    def init(key):
        variables = model.init(key)
        return variables._replace(params=with_kernels(variables.params, kernels))

    return model._replace(init=init)
