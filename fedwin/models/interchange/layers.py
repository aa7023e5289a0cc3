"""The layers of a flax network: which module holds which parameters, and what PyTorch calls them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from fedwin.models.layers import BatchNorm, GroupNorm
from fedwin.models.model import Model

# Kind of layer -> name in a state dict -> name of the leaf, in the parameters or in the statistics.
CONVOLUTION = {"weight": "params.{}.kernel", "bias": "params.{}.bias"}
NORM = {
    "weight": "params.{}.scale",
    "bias": "params.{}.bias",
    "running_mean": "stats.{}.mean",
    "running_var": "stats.{}.var",
}
LEAVES = {
    "convolution": CONVOLUTION,
    "dense": CONVOLUTION,
    "norm": NORM,
    "embedding": {"weight": "params.{}.embedding"},
}
_MODULES = (
    (nn.Conv, "convolution"),
    (nn.Dense, "dense"),
    ((GroupNorm, BatchNorm, nn.GroupNorm, nn.BatchNorm, nn.LayerNorm), "norm"),
    (nn.Embed, "embedding"),
)


class Layer(NamedTuple):
    """A layer with parameters.

    Attributes:
      channels: channels of the feature map that was flattened to the layer's input; 0 for any other input.
      vectors: whether the input is [B, n].
    """

    kind: str
    channels: int
    vectors: bool


class _Recorder:
    """Interceptor that records the layers that are called, and all modules."""

    def __init__(self, channels: int):
        self.channels = channels
        self.layers: dict[str, Layer] = {}
        self.modules: dict[str, nn.Module] = {}

    def __call__(self, function, args, kwargs, context):
        before, out = self.channels, function(*args, **kwargs)
        if context.method_name != "__call__":
            return out
        self.modules[".".join(context.module.path)] = context.module
        kind = next((kind for modules, kind in _MODULES if isinstance(context.module, modules)), None)
        if kind:
            vectors = bool(args) and getattr(args[0], "ndim", 0) == 2
            channels = before if vectors and args[0].shape[-1] != before else 0  # a base class's call may have reset it
            self.layers[".".join(context.module.path)] = Layer(kind, channels, vectors)
        if kind == "convolution" or getattr(out, "ndim", 0) == 4:  # of series and volumes, a convolution's alone
            self.channels = out.shape[-1]
        elif kind in ("dense", "embedding"):  # dropout and norms leave the order of a flattened map
            self.channels = 0
        return out


def recorded(model: Model, input_shape: tuple[int, ...], input_dtype) -> tuple[dict[str, Layer], dict[str, nn.Module]]:
    """Returns path -> layer and path -> module of a flax network, from a trace without values.

    Both are empty for networks of other libraries; the path of the network itself is ''.
    """
    recorder = _Recorder(input_shape[-1] if len(input_shape) == 3 else 0)
    batch = {"x": jax.ShapeDtypeStruct((2, *input_shape), input_dtype), "mask": jax.ShapeDtypeStruct((2,), jnp.float32)}
    apply = lambda variables, batch: model.apply(variables, batch, None, False)
    with nn.intercept_methods(recorder):
        jax.eval_shape(apply, jax.eval_shape(model.init, jax.random.key(0)), batch)
    return recorder.layers, recorder.modules
