"""Converts the arrays of a file to the parameters of a network: names, PyTorch's layouts, shapes and types."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedwin.errors import UserError
from fedwin.files import parse_json, read_bytes
from fedwin.models.interchange import array_files
from fedwin.models.interchange.layers import LEAVES, Layer, recorded
from fedwin.models.model import Model

LAYOUTS = ("auto", "jax", "torch")
# Entries of state dicts that no network needs.
COUNTERS = "num_batches_tracked"
# Names that a message lists.
LISTED = 8

# Name -> shape and dtype of a network's parameters and statistics.
Shapes = Mapping[str, Any]


class Loaded(NamedTuple):
    """Parameters from a file.

    Attributes:
      leaves: name in checkpoints, such as params.conv1.kernel, -> array; those of the file that have a place.
      note: what was converted, in words; '' for nothing.
    """

    leaves: dict[str, np.ndarray]
    note: str


def load(
    path: str | os.PathLike,
    model: Model,
    shapes: Shapes,
    wanted: Shapes,
    input_shape: tuple[int, ...],
    input_dtype,
    map: str | None = None,
    layout: str = "auto",
) -> Loaded:
    """Reads the parameters of a network from a file.

    PyTorch's layouts are converted by the kind of each layer:

        convolution    [out, in, h, w] -> [h, w, in, out]
        dense          [out, in] -> [in, out]; after a feature map, its inputs from C, H, W to H, W, C
        norm           weight, bias, running_mean, running_var -> scale, bias, mean, var

    `torch_module.state_dict` is the reverse.

    Args:
      shapes: name -> shape and dtype of its parameters and statistics.
      wanted: the names to take from the file; the shapes of others may differ.
      map: a JSON file, {name in the file: name in the network}; layers or single arrays, null leaves one out.
      layout: 'torch', 'jax', or 'auto': torch for .pt, .pth and files with names that end in `weight`.

    Raises:
      UserError: the file or the map can't be read, a name has no place in the network, or a shape or type differs.
    """
    file = array_files.read(path)
    names = read_map(map) if map else {}
    for name in names:
        if not any(array == name or array.startswith(f"{name}.") for array in file.arrays):
            raise UserError(f"map: '{name}' names nothing in {path}; it has {_listed(file.arrays)}.")
    if layout == "auto":
        is_torch = str(path).endswith((".pt", ".pth")) or any(name.split(".")[-1] == "weight" for name in file.arrays)
        layout = "torch" if is_torch and file.metadata.get("layout", "torch") == "torch" else "jax"
    if layout == "jax":
        renamed = {name: _renamed(name, names) for name in file.arrays}
        leaves = {own: file.arrays[name] for name, own in _unique(renamed, path).items()}
        return Loaded({name: _cast(name, value, wanted, path) for name, value in leaves.items()}, "")
    layers, _ = recorded(model, input_shape, input_dtype)
    if not layers:
        raise UserError(
            f"{path} has PyTorch's layout, which is read into flax networks alone, not into '{model.name}'; convert it "
            f"and write layout=jax."
        )
    return _from_torch(file.arrays, names, layers, shapes, wanted, path)


def read_map(path: str | os.PathLike) -> dict[str, str | None]:
    """Reads a map of names, a JSON file with one object of texts and nulls.

    Raises:
      UserError: it can't be read, or has another form.
    """
    try:
        names = parse_json(read_bytes(path))
    except OSError as error:
        raise UserError(f"map={path} can't be read ({error.strerror or error}); check the path.") from error
    except ValueError as error:
        raise UserError(f"map={path} is not JSON ({error}).") from error
    if not isinstance(names, dict) or not all(value is None or isinstance(value, str) for value in names.values()):
        raise UserError(f'map={path} must be one object of names, such as {{"fc": "classifier", "head": null}}.')
    return names


def _listed(names) -> str:
    names = list(names)
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def _renamed(name: str, names: Mapping[str, str | None]) -> str | None:
    """Returns the mapped name of an array: by its own entry, or that of the longest module that contains it."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        if module in names:
            target = names[module]
            return None if target is None else ".".join([target, *parts[end:]])
    return name


def _unique(renamed: Mapping[str, str | None], path) -> dict[str, str]:
    """Returns the names that have a target; raises UserError if two have the same."""
    owners: dict[str, str] = {}
    for name, own in renamed.items():
        if own is not None and (other := owners.setdefault(own, name)) != name:
            raise UserError(f"{path}: '{other}' and '{name}' are both '{own}'; map one of them to null.")
    return {name: own for own, name in owners.items()}


def _from_torch(arrays, names, layers: dict[str, Layer], shapes: Shapes, wanted: Shapes, path) -> Loaded:
    """Returns the wanted parameters of a state dict."""
    places = {
        name: _place(name, _renamed(name, names), layers, shapes, path)
        for name in arrays
        if name.rpartition(".")[2] != COUNTERS
    }
    targets = _unique({name: place and place[0] for name, place in places.items()}, path)
    leaves, kinds, flattened = {}, dict.fromkeys(LEAVES, 0), []
    for name, own in targets.items():
        _, layer_path = places[name] or ("", "")
        layer, value = layers.get(layer_path, Layer("dense", 0, False)), arrays[name]
        if own not in wanted:
            continue
        if own.endswith(".kernel"):
            kinds[layer.kind] += 1
        if layer.channels and layer_path not in flattened and not (layer.kind == "dense" and own.endswith(".bias")):
            flattened.append(layer_path)
        value = _in_own_layout(own, value, layer)
        leaves[own] = _cast(own, value, wanted, f"'{name}' of {path}", arrays[name].shape)
    note = (
        f"PyTorch's layout: {kinds['convolution']} convolutions OIHW -> HWIO, {kinds['dense']} dense layers transposed"
    )
    note += "".join(f", inputs of {each} CHW -> HWC" for each in flattened)
    return Loaded(leaves, note)


def _place(name: str, target: str | None, layers: dict[str, Layer], shapes: Shapes, path) -> tuple[str, str] | None:
    """Returns (name of the leaf, path of its layer) of an array of a state dict; None if it is left out."""
    if target is None:
        return None
    if target in shapes:
        layer = target.partition(".")[2].rpartition(".")[0]
        if layer in layers or not layer:  # the network's own arrays, such as learned positions, have no layer
            return target, layer
    module, _, leaf = target.rpartition(".")
    # A norm of this package is a module inside of `Norm`.
    below = [each for each in layers if each == module or each.startswith(f"{module}.")]
    if len(below) == 1 and leaf in LEAVES[layers[below[0]].kind]:
        own = LEAVES[layers[below[0]].kind][leaf].format(below[0])
        if own in shapes:
            return own, below[0]
    raise UserError(
        f"init_from: '{name}' of {path} has no place in this model, whose layers are {_listed(layers)}; name its "
        f"layer in map=names.json, or null to leave it out."
    )


def _in_own_layout(own: str, value: np.ndarray, layer: Layer) -> np.ndarray:
    """Returns an array of a state dict with channels last, and the inputs of a kernel before its outputs."""
    is_kernel = own.endswith(".kernel")
    if layer.channels and (is_kernel or layer.kind == "norm") and value.ndim:
        # Positions of a flattened map: the last axis of a dense layer's weight, the only one of a norm's.
        if value.shape[-1] % layer.channels:
            raise UserError(
                f"init_from: the {value.shape[-1]} inputs of '{own}' are not a flattened map of {layer.channels} "
                f"channels; convert the file, and write layout=jax."
            )
        value = value.reshape(*value.shape[:-1], layer.channels, -1).swapaxes(-1, -2).reshape(value.shape)
    return value.transpose(*range(2, value.ndim), 1, 0) if is_kernel and value.ndim > 1 else value


def _cast(name: str, value: np.ndarray, wanted: Shapes, where, stored: tuple[int, ...] | None = None) -> np.ndarray:
    """Returns an array as the network's dtype if that is exact; names that are not wanted pass."""
    like = wanted.get(name)
    if like is None:
        return value
    if value.shape != tuple(like.shape):
        converted = f" (stored as {list(stored)})" if stored is not None and stored != value.shape else ""
        raise UserError(
            f"init_from: '{name}' is {list(value.shape)}{converted} in {where} and {list(like.shape)} here; use the "
            f"same network, or another map."
        )
    if not np.can_cast(value.dtype, like.dtype):
        raise UserError(
            f"init_from: '{name}' is {value.dtype} in {where} and {like.dtype} here, which can't hold it exactly; "
            f"convert the file, or set --precision."
        )
    value = np.ascontiguousarray(value.astype(like.dtype)).reshape(value.shape)
    if not np.isfinite(value).all():
        raise UserError(f"init_from: '{name}' has NaN or infinite values in {where}.")
    return value
