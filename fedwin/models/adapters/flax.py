"""from_flax: wraps a flax.linen module as a Model."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import tracers

from fedwin import jax_config, tree
from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.models.adapters.classifier import (
    check_input_shape,
    is_linear,
    linear,
    locate_classifier,
    num_outputs,
    subtree,
    traced_shapes,
)
from fedwin.models.convolution import lower_convolutions
from fedwin.models.model import Model, Output, compute_dtype


class _LayerRecorder:
    """Interceptor that records path and width of dense layers, and the input of the layer at `path`.

    Attributes:
      readable: path -> whether the layer has one input, in the trace of the network's call (not nn.scan's, say).
    """

    def __init__(self, path=()):
        self.path, self.dense_layers, self.features = path, [], ()
        self.readable, self.running, self.trace = {}, [], tracers.current_trace()

    def __call__(self, next_fun, args, kwargs, context):
        path = context.module.path
        if context.method_name != "__call__" or path in self.running:  # a base class's call
            return next_fun(*args, **kwargs)
        if isinstance(context.module, nn.Dense):
            self.dense_layers.append((path, context.module.features))
        self.readable[path] = path not in self.readable and tracers.current_trace() == self.trace
        if self.path and path == self.path:
            self.features = (args[0] if args else next(iter(kwargs.values()))) if self.readable[path] else ()
        self.running.append(path)
        out = next_fun(*args, **kwargs)
        self.running.pop()
        return out


class _Module:
    """A flax module, called with those arguments that its signature has."""

    def __init__(self, module, name: str | None):
        if not isinstance(module, nn.Module):
            shown = getattr(module, "__name__", type(module).__name__)  # modules of flax.nnx are printed on many lines
            raise UserError(
                f"from_flax: {shown} is not a flax.linen module; create one first, such as Network(), and give that "
                f"(from flax.nnx, without dropout and BatchNorm: flax.nnx.bridge.to_linen(Network, ...))."
            )
        self.module, self.name = module, name or type(module).__name__
        self.signature = inspect.signature(type(module).__call__).parameters

    def arguments(self, train: bool, mask) -> dict[str, Any]:
        """Returns the keyword arguments for training mode and mask that the module's signature has."""
        arguments = dict.fromkeys(("train", "training", "is_training", "is_train"), train)
        arguments |= {"deterministic": not train, "use_running_average": not train, "mask": mask}
        return {name: value for name, value in arguments.items() if name in self.signature}

    def logits(self, out):
        """Returns the logits of a module's result; raises UserError for a tuple other than (logits, features)."""
        if isinstance(out, tuple) and len(out) != 2:
            raise UserError(f"{self.name} returns {len(out)} values; it must return logits, or (logits, features).")
        return out[0] if isinstance(out, tuple) else out


def from_flax(
    module,
    input_shape,
    num_classes=None,
    *,
    classifier_path=None,
    name=None,
    dtype="float32",
    lower=True,
    input_dtype=jnp.float32,
) -> Model:
    """Wraps a flax.linen module as a Model: logits = module.apply(variables, batch['x'], train=...).

    >>> import flax.linen as nn
    >>> class Logistic(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x):
    ...         return nn.Dense(10)(x.reshape(len(x), -1))
    >>> model = from_flax(Logistic(), (8, 8, 1))
    >>> model.num_classes, model.classifier_path
    (10, ('Dense_0',))

    Args:
      module: called with x and, if its signature has them, train (training, deterministic) and mask=batch['mask'];
        returns logits or (logits, features). Its randomness comes from the 'dropout' stream.
      num_classes: width of the logits; None determines it by tracing.
      classifier_path: keys of the classifier's subtree in params, e.g. ('classifier',); None takes the last nn.Dense
        whose width is num_classes.
      name: name of the model; None takes the class's.
      dtype: compute type of `Model.classifier`.
      lower: whether fedwin.models.convolution computes its convolutions and max-pools.
      input_dtype: dtype of the examples; jnp.int32 for tokens.

    Returns:
      A Model whose features are the input of the classifier layer. Without such a layer, and with one that is called
      several times or inside nn.remat, nn.jit or nn.scan, Model.classifier is None.

    Raises:
      UserError: when the module does not take examples of that shape, does not return num_classes logits, has
        collections other than 'params' and 'batch_stats', or is one of flax.nnx with dropout or BatchNorm.
    """
    recorder, wrapped = _LayerRecorder(), _Module(module, name)
    name = wrapped.name
    dtype, input_shape = compute_dtype(dtype), check_input_shape(name, input_shape)

    @jax.jit  # one compilation instead of one per operation, one trace for the shapes here and for init
    def initialize(key):
        recorder.trace, streams = tracers.current_trace(), {"params": key, "dropout": jax.random.fold_in(key, 1)}
        with nn.intercept_methods(recorder):
            arguments = wrapped.arguments(False, jnp.ones(1))
            out = module.init_with_output(streams, jnp.zeros((1, *input_shape), input_dtype), **arguments)
        return nn.unbox(out)  # arrays without the names of axes that nn.with_partitioning puts around them

    out, variables = traced_shapes(name, input_shape, initialize, jax.random.key(0))
    width = num_outputs(name, wrapped.logits(out), num_classes)
    params, has_stats = variables.get("params", {}), "batch_stats" in variables
    if others := variables.keys() - {"params", "batch_stats"}:
        raise UserError(f"{name} keeps state in {sorted(others)}; only 'batch_stats' is supported.")
    if type(module).__module__.startswith("flax.nnx.") and not module.skip_rng:
        _check_has_no_modes(module, name)
    path = locate_classifier(name, params, classifier_path, recorder.dense_layers, width)

    # With fewer of LLVM's passes it is compiled in half the time; only a program of its own may have options.
    options = jax_config.compiler_options() | {"xla_backend_optimization_level": 1}
    quick = jax.jit(lambda key: initialize(key)[1], compiler_options=options)

    def init(key):
        values = initialize(key)[1] if jax_config.is_traced() else quick(key)
        if dtype == jnp.float64:
            values = jax.tree.map(lambda x: x.astype(dtype), values)
        return Variables(values.get("params", {}), values.get("batch_stats", ()))

    def classifier(params, features):
        return linear(subtree(params, path), features, "kernel", "bias", dtype)

    has_features = isinstance(out, tuple) or recorder.readable.get(path, False)
    head = classifier if has_features and is_linear(params, path, "kernel", width) else None
    return Model(init, _apply(wrapped, path, has_stats, lower), head, path, name, width)


def _check_has_no_modes(module, name: str) -> None:
    """Raises UserError if a module of flax.nnx has layers that differ in training and in evaluation."""
    from flax import nnx  # takes as long as importing flax.linen

    built = nnx.eval_shape(lambda: module.nnx_class(*module.args, **module.kwargs, rngs=nnx.Rngs(0)))
    if any(isinstance(node, nnx.Dropout | nnx.BatchNorm) for _, node in nnx.iter_graph(built)):
        raise UserError(f"{name}: dropout and BatchNorm of flax.nnx cannot evaluate; write a flax.linen module.")


def _apply(wrapped: _Module, path, has_stats: bool, lower: bool):
    """Returns Model.apply of a module."""

    def apply(variables, batch, key, train):
        values = {"params": variables.params}
        if has_stats:
            values["batch_stats"] = variables.stats
        mutable = ["batch_stats"] if has_stats and train else False

        def forward(values, x, mask, key):
            recorder, streams = _LayerRecorder(path), {"dropout": key} if train else None
            with nn.intercept_methods(recorder):
                out = wrapped.module.apply(values, x, rngs=streams, mutable=mutable, **wrapped.arguments(train, mask))
            out, updated = out if mutable else (out, {})
            return (out if isinstance(out, tuple) else (out, recorder.features)), updated

        forward = lower_convolutions(forward) if lower else forward
        mask = batch.get("mask", jnp.ones(len(batch["x"]), jnp.float32))  # batches without padding have none
        (logits, features), updated = forward(values, batch["x"], mask, key)
        return Output(tree.at_least_float32(logits), features, updated.get("batch_stats", variables.stats))

    return apply
