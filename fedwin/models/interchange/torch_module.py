"""Writes a flax network as source code of a PyTorch module, and its parameters as the state dict of that module.

A module has a PyTorch form if its method `torch_modules()` returns the names of its layers and PyTorch's constructors
between them, in order; absent layers are skipped. Its attribute `torch_class`, the source code of a class derived from
nn.Sequential, replaces the plain chain.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from flax import linen as nn

from fedwin.errors import UserError
from fedwin.models.interchange.layers import LEAVES, Layer, recorded
from fedwin.models.interchange.parameters import COUNTERS
from fedwin.models.layers import BatchNorm, GroupNorm
from fedwin.models.model import Model

SOURCE = """from collections import OrderedDict

{reader}
import torch
from torch import nn
from torch.nn import functional as F

{classes}
model = nn.Sequential(OrderedDict(
{chain}
))


def prepare(x):
    \"\"\"Examples as the data set has them, [B{shape}], as the input of the model.\"\"\"
{prepare}    return x


{load}
model.load_state_dict({{name: torch.as_tensor(arrays[name]) for name in model.state_dict()}})
model.eval()
"""


def convert(model: Model, arrays: Mapping[str, Any], metadata: Mapping[str, Any], path) -> tuple[dict[str, Any], str]:
    """Returns the state dict of a network, and source code that makes the PyTorch module `model` and loads the file.

    The layouts are those that `interchange.load` reads: out before in, channels before rows and columns.

    Args:
      arrays: name -> parameters and statistics, such as params.conv1.kernel.
      metadata: as `fedwin.export` writes it, with input_shape, input_dtype, mean and std.
      path: path of the file.

    Raises:
      UserError: the network has no PyTorch form.
    """
    shape, is_uint8 = tuple(metadata["input_shape"]), metadata["input_dtype"] == "uint8"
    layers, modules = recorded(model, shape, np.dtype("float32" if is_uint8 else metadata["input_dtype"]))
    if not hasattr(modules.get(""), "torch_modules"):
        raise UserError(
            f"layout=torch: the network '{model.name}' has no PyTorch form, as perceptrons, plain CNNs and ResNets "
            f"have; give your own module a method torch_modules(), or export it with --layout=jax."
        )
    ends = "(-1, 1, 1)" if len(shape) == 3 else "(-1)"
    tensor = lambda sign, values: f"x = x {sign} torch.tensor({values}).reshape{ends}" if values is not None else ""
    lines = ["x = x.movedim(-1, 1)" if len(shape) == 3 else "", "x = x / 255" if is_uint8 else ""]
    lines += [tensor("-", metadata["mean"]), tensor("/", metadata["std"])]
    reader = "np.load" if path.suffix == ".npz" else "load_file"
    unnamed = dict(layers)
    source = SOURCE.format(
        classes="\n\n".join(dict.fromkeys(m.torch_class + "\n" for m in modules.values() if hasattr(m, "torch_class"))),
        chain="\n".join(_chain("", modules, unnamed, arrays, "    ")),
        shape="".join(f", {size}" for size in shape),
        prepare="".join(f"    {line}\n" for line in lines if line),
        reader="import numpy as np" if reader == "np.load" else "from safetensors.torch import load_file",
        load=f"arrays = {reader}({path.name!r})",
    )
    if unnamed:
        raise UserError(f"layout=torch: torch_modules of '{model.name}' leaves out its layer '{next(iter(unnamed))}'.")
    return dict(_state_dict(arrays, layers)), source


def _state_dict(arrays: Mapping[str, Any], layers: dict[str, Layer]) -> Iterator[tuple[str, np.ndarray]]:
    for path, layer in layers.items():
        # A norm of this package is a module inside of `Norm`.
        name = path.removesuffix(".gn").removesuffix(".bn")
        for leaf, own in LEAVES[layer.kind].items():
            if (value := arrays.get(own.format(path))) is not None:
                yield f"{name}.{leaf}", _in_torch_layout(own, np.asarray(value), layer)
        if f"stats.{path}.var" in arrays:
            yield f"{name}.{COUNTERS}", np.asarray(np.int64(0))


def _in_torch_layout(own: str, value: np.ndarray, layer: Layer) -> np.ndarray:
    """Returns an array with the outputs of a kernel before its inputs, and channels before positions."""
    is_kernel = own.endswith(".kernel")
    value = value.transpose(-1, -2, *range(value.ndim - 2)) if is_kernel else value
    if layer.channels and (is_kernel or layer.kind == "norm"):
        value = value.reshape(*value.shape[:-1], -1, layer.channels).swapaxes(-1, -2).reshape(value.shape)
    return value


def _chain(path: str, modules, layers, arrays, indent: str) -> Iterator[str]:
    """Generates the lines of a module's chain, and removes its layers from `layers`."""
    for number, step in enumerate(modules[path].torch_modules()):
        child = f"{path}.{step}".removeprefix(".")
        layer = next((name for name in (child, f"{child}.gn", f"{child}.bn") if name in layers), None)
        if "(" in step:
            yield f"{indent}{step.partition('(')[0].lower()}_{number}=nn.{step},"
        elif layer is not None:
            yield f"{indent}{step}=nn.{_constructor(modules[layer], arrays, layer, layers.pop(layer))},"
        elif child in modules:
            name = modules[child].torch_class.split("class ")[1].partition("(")[0]
            inner = _chain(child, modules, layers, arrays, indent + "    ")
            yield "\n".join([f"{indent}{step}={name}(OrderedDict(", *inner, f"{indent})),"])


def _constructor(module: nn.Module, arrays: Mapping[str, Any], path: str, layer: Layer) -> str:
    """Returns PyTorch's constructor of a layer; raises UserError for a layer without one."""
    # Groups of a flattened map are neighbors here, and channels in PyTorch.
    if isinstance(module, GroupNorm) and module.epsilon == 1e-5 and (module.groups == 1 or layer.channels < 2):
        return f"GroupNorm({module.groups}, {len(arrays[f'params.{path}.scale'])})"
    if isinstance(module, BatchNorm) and module.epsilon == 1e-5:
        return f"BatchNorm{1 if layer.vectors else 2}d({len(arrays[f'params.{path}.scale'])})"
    if not isinstance(module, nn.Dense) and not _is_plain(module):
        raise UserError(
            f"layout=torch: '{path}' is no dense layer, norm of fedwin.models.layers with epsilon=1e-5 (and one group "
            f"after a flattened map), or convolution of images with a square window, even padding, and neither "
            f"dilation nor groups; export with --layout=jax."
        )
    *window, inputs, outputs = arrays[f"params.{path}.kernel"].shape
    bias = "" if module.use_bias else ", bias=False"
    if isinstance(module, nn.Dense):
        return f"Linear({inputs}, {outputs}{bias})"
    padding = repr(module.padding.lower()) if isinstance(module.padding, str) else np.max(module.padding)
    return f"Conv2d({inputs}, {outputs}, {window[0]}, {module.strides or 1}, {padding}{bias})"


def _is_plain(module: nn.Module) -> bool:
    """Whether a layer is a convolution that PyTorch has with the same padding."""
    if not isinstance(module, nn.Conv) or np.shape(module.kernel_size) != (2,) or np.ptp(module.kernel_size):
        return False
    # Padding of 'SAME' depends on the image where strides are larger.
    ones: list[Any] = [module.kernel_dilation, module.input_dilation, module.feature_group_count]
    ones += [module.strides] * (module.padding == "SAME")
    even = module.padding in ("SAME", "VALID") if isinstance(module.padding, str) else not np.ptp(module.padding)
    return even and all(np.all(np.equal(number or 1, 1)) for number in ones)  # None stands for 1
