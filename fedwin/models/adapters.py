"""Networks of flax, haiku and FedJAX as fedwin.models.Model."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.models.lowering import lower_convolutions
from fedwin.models.model import Model, Output


def at_least_float32(x):
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def subtree(params, path):
    """Returns params[path[0]][path[1]]..."""
    for key in path:
        params = params[key]
    return params


def linear(params, features, weight: str, bias: str, dtype=jnp.float32):
    """features @ params[weight] + params[bias], computed in dtype, returned in at least float32; bias may be absent."""
    logits = jnp.asarray(features, dtype) @ jnp.asarray(params[weight], dtype)
    if bias in params:
        logits = logits + jnp.asarray(params[bias], dtype)
    return at_least_float32(logits)


def _is_linear(params, path, weight) -> bool:
    try:
        leaf = subtree(params, path)[weight]
    except (KeyError, TypeError):
        return False
    return bool(path) and len(leaf.shape) == 2


def _train_argument(signature) -> dict[bool, dict[str, Any]]:
    """How a module wants to hear whether it trains: {train: keyword arguments}."""
    for name in ("train", "training", "is_training", "is_train"):
        if name in signature:
            return {True: {name: True}, False: {name: False}}
    if "deterministic" in signature:
        return {True: {"deterministic": False}, False: {"deterministic": True}}
    return {True: {}, False: {}}


def from_flax(module, input_shape, num_classes=None, *, classifier_path=None, name=None, dtype="float32", lower=True, input_dtype=jnp.float32) -> Model:  # fmt: skip
    """Wraps a flax.linen module: y = module.apply(variables, batch['x'], train=...).

    Args:
      module: called as (x), with train/training/deterministic where its signature has it and with mask=batch['mask']
        where it has that; returns logits or (logits, features). Randomness comes from the 'dropout' stream.
      input_shape: shape of one example. input_dtype: int32 for tokens.
      num_classes: width of the logits; found by tracing when None.
      classifier_path: keys of the classifier's subtree in params, ('classifier',) for the networks here; by default
        the last nn.Dense whose width is num_classes.
      dtype: the compute type, for `classifier`. lower: rewrites convolutions (fedwin.models.lowering).
    Returns:
      a Model; features = input of the classifier layer, Model.classifier None where no such layer is found.
    """
    signature = inspect.signature(type(module).__call__).parameters
    train_argument = _train_argument(signature)
    dtype = jnp.dtype(dtype)
    sample = jax.ShapeDtypeStruct((1, *input_shape), input_dtype)
    last = []

    def call(x, train, mask, rngs, variables=None, mutable=False, want=None):
        kwargs = dict(train_argument[train])
        if "mask" in signature:
            kwargs["mask"] = mask
        caught = {}

        def intercept(next_fun, args, kwargs, context):
            if isinstance(context.module, nn.Dense) and context.method_name == "__call__":
                last.append((context.module.path, context.module.features))
            if want and context.module.path == want and context.method_name == "__call__":
                caught["features"] = args[0]
            return next_fun(*args, **kwargs)

        with nn.intercept_methods(intercept):
            if variables is None:
                return module.init_with_output(rngs, x, **kwargs)
            out = module.apply(variables, x, rngs=rngs, mutable=mutable, **kwargs)
        out, updated = out if mutable else (out, {})
        if not isinstance(out, tuple):
            out = (out, caught.get("features", ()))
        return out, updated

    @jax.jit  # one compilation instead of one per operation, one trace for the shapes here and for init
    def initialise(key):
        streams = {"params": key, "dropout": jax.random.fold_in(key, 1)}
        return call(jnp.zeros(sample.shape, sample.dtype), False, None, streams)

    try:
        shape, variables = jax.eval_shape(initialise, jax.random.key(0))
    except (TypeError, ValueError, ZeroDivisionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{name or type(module).__name__} does not take examples of shape {tuple(input_shape)}, perhaps too small: {reason}") from error  # fmt: skip
    logits = shape[0] if isinstance(shape, tuple) else shape
    width = logits.shape[-1]
    if num_classes is not None and width != num_classes:
        raise UserError(f"{name or type(module).__name__} has {width} outputs, the data {num_classes} classes.")
    if classifier_path is None:
        found = [path for path, features in last if features == width]
        classifier_path = found[-1] if found else ()
    path = tuple(classifier_path)
    collections = [k for k in variables if k != "params"]
    if len(collections) > 1 or (collections and collections != ["batch_stats"]):
        raise UserError(f"{type(module).__name__} keeps state in {collections}; only 'batch_stats' is supported.")

    def init(key):
        _, values = initialise(key)
        if dtype == jnp.float64:
            values = jax.tree.map(lambda x: x.astype(dtype), values)
        return Variables(values["params"], values.get("batch_stats", ()))

    def apply(variables, batch, key, train):
        values = {"params": variables.params}
        mutable = False
        if collections:
            values["batch_stats"] = variables.stats
            mutable = ["batch_stats"] if train else False

        def forward(values, x, mask, key):
            return call(x, train, mask, {"dropout": key} if train else None, values, mutable, path)

        forward = lower_convolutions(forward) if lower else forward
        (logits, features), updated = forward(values, batch["x"], batch.get("mask"), key)
        return Output(at_least_float32(logits), features, updated.get("batch_stats", variables.stats))

    classifier = None
    if _is_linear(variables["params"], path, "kernel"):

        def classifier(params, features):
            return linear(subtree(params, path), features, "kernel", "bias", dtype)

    return Model(init, apply, classifier, path, name or type(module).__name__, width)


def _catching(function, path):
    """Runs `function`, returns (result, input of the haiku module at `path`, [(module name, output width)])."""
    import haiku as hk

    caught, seen = [], []

    def intercept(next_fun, args, kwargs, context):
        if context.method_name == "__call__" and isinstance(context.module, hk.Linear):
            seen.append((context.module.module_name, context.module.output_size))
            if path and context.module.module_name == path[0]:
                caught.append(args[0])
        return next_fun(*args, **kwargs)

    with hk.intercept_methods(intercept):
        result = function()
    # A module that is called once per time step has as many inputs: they are not one array of features.
    return result, caught[0] if len(caught) == 1 else (), seen


def _from_functions(init_fn, train_fn, eval_fn, sample_batch, num_classes, classifier_path, name) -> Model:
    """A Model from init(key) -> (params, stats) and two functions (params, stats, batch, key) -> (logits, stats)."""
    params, stats = jax.eval_shape(init_fn, jax.random.key(0))
    seen = []

    def probe(params, stats, key):
        (logits, _), _, found = _catching(lambda: eval_fn(params, stats, sample_batch, key), None)
        seen.extend(found)
        return logits

    width = jax.eval_shape(probe, params, stats, jax.random.key(0)).shape[-1]
    if num_classes is not None and width != num_classes:
        raise UserError(f"{name} has {width} outputs, the data {num_classes} classes.")
    if classifier_path is None:
        found = [(module,) for module, features in seen if features == width]
        classifier_path = found[-1] if found else ()
    watched = path = tuple(classifier_path)

    def apply(variables, batch, key, train):
        function = train_fn if train else eval_fn

        def forward(params, stats, batch, key):
            (logits, stats), features, _ = _catching(lambda: function(params, stats, batch, key), watched)
            return logits, features, stats

        logits, features, stats = lower_convolutions(forward)(variables.params, variables.stats, batch, key)
        return Output(at_least_float32(logits), features, stats)

    def classifier(params, features):
        return linear(subtree(params, path), features, "w", "b")

    def whole(params, stats, key):
        return classifier(params, apply(Variables(params, stats), sample_batch, key, False).features)

    if not _is_linear(params, path, "w"):
        classifier = None
    else:
        try:
            jax.eval_shape(whole, params, stats, jax.random.key(0))
        except (jax.errors.UnexpectedTracerError, TypeError):
            # The layer runs inside a jit of the model's own, or once per time step: no array of features to return.
            classifier, watched = None, ()
    return Model(lambda key: Variables(*init_fn(key)), apply, classifier, path, name, width)


def from_haiku(transformed, sample_batch, num_classes=None, *, train_kwargs=None, eval_kwargs=None, classifier_path=None, name="haiku") -> Model:  # fmt: skip
    """Wraps hk.transform or hk.transform_with_state of a function of (batch, **kwargs) that returns logits.

    Args:
      transformed: the transformed function, called with a dict batch (at least 'x').
      sample_batch: a batch to initialise with, e.g. {'x': zeros [1, 28, 28, 1]}.
      num_classes: width of the logits; found by tracing when None.
      train_kwargs, eval_kwargs: keyword arguments in training and evaluation, e.g. {'is_train': True}.
      classifier_path: (module name,); by default the last hk.Linear whose width is num_classes.
    """
    import haiku as hk

    train_kwargs, eval_kwargs = train_kwargs or {}, eval_kwargs or {}
    stateful = isinstance(transformed, hk.TransformedWithState)

    def init(key):
        values = transformed.init(key, sample_batch, **train_kwargs)
        return values if stateful else (values, ())

    def run(kwargs):
        def function(params, stats, batch, key):
            if stateful:
                return transformed.apply(params, stats, key, batch, **kwargs)
            return transformed.apply(params, key, batch, **kwargs), stats

        return function

    return _from_functions(init, run(train_kwargs), run(eval_kwargs), sample_batch, num_classes, classifier_path, name)


def from_fedjax(model, sample_batch, num_classes=None, *, classifier_path=None, name="fedjax") -> Model:
    """Wraps a fedjax.Model, whose apply_for_train(params, batch, rng) and apply_for_eval(params, batch) return logits.

    Args:
      model: made from haiku, or any other; features are found for haiku's only.
      sample_batch: a batch with the features that the model reads, e.g. {'x': zeros [1, 28, 28, 1]}.
      num_classes, classifier_path, name: as in from_haiku.
    """
    # Below fedjax's own jit, so that the classifier's input can be read.
    init, train, evaluate = map(inspect.unwrap, (model.init, model.apply_for_train, model.apply_for_eval))
    return _from_functions(
        lambda key: (init(key), ()),
        lambda params, stats, batch, key: (train(params, batch, key), stats),
        lambda params, stats, batch, key: (evaluate(params, batch), stats),
        sample_batch, num_classes, classifier_path, name,
    )  # fmt: skip
