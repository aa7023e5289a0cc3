"""from_haiku, from_fedjax: wrap haiku transforms and FedJAX models as a Model."""

import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax.core import tracers

from fedwin import tree
from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.models.adapters.classifier import is_linear, linear, locate_classifier, num_outputs, subtree, traced_shapes
from fedwin.models.convolution import lower_convolutions
from fedwin.models.model import Model, Output


def from_haiku(
    transformed,
    sample_batch,
    num_classes=None,
    *,
    train_kwargs=None,
    eval_kwargs=None,
    classifier_path=None,
    name="haiku",
) -> Model:
    """Wraps hk.transform or hk.transform_with_state of a function of (batch, **kwargs) that returns logits as a Model.

    >>> import haiku as hk
    >>> import numpy as np
    >>> network = hk.transform(lambda batch: hk.Linear(10)(hk.Flatten()(batch["x"])))
    >>> model = from_haiku(network, {"x": np.zeros((1, 8, 8, 1), np.float32)})
    >>> model.num_classes, model.classifier_path
    (10, ('linear',))

    Args:
      transformed: the transformed function, called with a dict batch (at least 'x').
      sample_batch: a batch to initialize with, e.g. {'x': zeros [1, 28, 28, 1]}.
      num_classes: width of the logits; None determines it by tracing.
      train_kwargs: keyword arguments in training, e.g. {'is_train': True}.
      eval_kwargs: keyword arguments in evaluation, e.g. {'is_train': False}.
      classifier_path: (module name,); None takes the last hk.Linear whose width is num_classes.

    Returns:
      A Model whose features are the input of the classifier layer. Without such a layer, and with one that is called
      several times or inside hk.remat or hk.scan, Model.classifier is None.

    Raises:
      UserError: when the function is not transformed, has state but was transformed with hk.transform, cannot be traced
        on sample_batch, or does not return num_classes logits.
    """
    import haiku as hk

    if not isinstance(transformed, (hk.Transformed, hk.TransformedWithState)):
        raise UserError(f"{name}: {transformed!r} is not a haiku transform; wrap the function in hk.transform.")
    if "rng" not in inspect.signature(transformed.apply).parameters:
        raise UserError(f"{name}: apply needs a key for training; give it the transform, not hk.without_apply_rng's.")
    kwargs = {True: train_kwargs or {}, False: eval_kwargs or {}}
    stateful = isinstance(transformed, hk.TransformedWithState)

    def init(key):
        values = transformed.init(key, sample_batch, **kwargs[True])
        if not stateful and isinstance(values, tuple):
            raise UserError(
                f"{name}: hk.Transformed around functions with state; give the result of hk.transform_with_state "
                "itself."
            )
        return (values[0], _in_floats(values[1])) if stateful else (values, ())

    def apply(params, stats, batch, key, train):
        if not stateful:
            return transformed.apply(params, key, batch, **kwargs[train]), stats
        logits, state = transformed.apply(params, stats, key, batch, **kwargs[train])
        return logits, _in_floats(state)

    return from_functions(init, apply, sample_batch, num_classes, classifier_path, name)


def _in_floats(state):
    """Returns the state of modules with its counters, such as BatchNorm's, as numbers that can be averaged."""
    is_float = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact)
    return jax.tree.map(lambda leaf: leaf if is_float(leaf) else jnp.asarray(leaf, float), state)


def from_fedjax(model, sample_batch, num_classes=None, *, classifier_path=None, name="fedjax") -> Model:
    """Wraps a fedjax.Model as a Model.

    Its apply_for_train(params, batch, rng) and apply_for_eval(params, batch) return logits; train_loss is not used.

    Args:
      model: a fedjax.Model; features are available for models made from haiku only.
      sample_batch: a batch with the features that the model reads, e.g. {'x': zeros [1, 28, 28, 1]}.
      num_classes, classifier_path: as for `from_haiku`, as are the result and the errors.
    """
    missing = [part for part in ("init", "apply_for_train", "apply_for_eval") if not hasattr(model, part)]
    if missing:
        raise UserError(f"{name}: {model!r} has no {missing[0]}; give a fedjax.Model.")
    # Below fedjax's own jit, so that the classifier's input can be read.
    init, for_train, for_eval = map(inspect.unwrap, (model.init, model.apply_for_train, model.apply_for_eval))

    def apply(params, stats, batch, key, train):
        return (for_train(params, batch, key) if train else for_eval(params, batch)), stats

    return from_functions(lambda key: (init(key), ()), apply, sample_batch, num_classes, classifier_path, name)


def from_functions(init: Callable, apply: Callable, sample_batch, num_classes, classifier_path, name: str) -> Model:
    """Returns the Model of pure functions that may consist of haiku modules; other arguments as for `from_haiku`.

    Args:
      init: key -> (params, stats).
      apply: (params, stats, batch, key, train) -> (logits, stats).
    """
    if not hasattr(sample_batch, "get") or not hasattr(sample_batch.get("x"), "shape"):
        raise UserError(f"{name}: sample_batch must be a dict with an array 'x', as {{'x': zeros [1, 28, 28, 1]}}.")
    linear_layers, with_features = [], []

    def probe(key):
        params, stats = init(key)
        (logits, _), inputs, layers = _run_recording(lambda: apply(params, stats, sample_batch, key, False))
        linear_layers.extend(layers)
        with_features.extend(path for path, features in inputs.items() if not isinstance(features, tuple))
        return params, stats, logits

    params, _, logits = traced_shapes(name, sample_batch["x"].shape[1:], probe, jax.random.key(0))
    width = num_outputs(name, logits, num_classes)
    path = locate_classifier(name, params, classifier_path, linear_layers, width)

    def classifier(params, features):
        return linear(subtree(params, path), features, "w", "b")

    head = classifier if is_linear(params, path, "w", width) and path in with_features else None
    return Model(lambda key: Variables(*init(key)), _apply(apply, path), head, path, name, width)


def _run_recording(function):
    """Runs a function and returns (result, (module name,) of a hk.Linear -> its input, [((module name,), width)]).

    A module that is called several times, or inside the model's own jit, hk.remat or hk.scan, has the input ().
    """
    import haiku as hk

    inputs, linear_layers, own = {}, [], tracers.current_trace()

    def intercept(next_fun, args, kwargs, context):
        if context.method_name == "__call__" and isinstance(context.module, hk.Linear):
            path = (context.module.module_name,)
            linear_layers.append((path, context.module.output_size))
            readable = path not in inputs and tracers.current_trace() == own
            inputs[path] = (args[0] if args else kwargs["inputs"]) if readable else ()
        return next_fun(*args, **kwargs)

    with hk.intercept_methods(intercept):
        return function(), inputs, linear_layers


def _apply(function: Callable, path: tuple[str, ...]):
    """Returns Model.apply, with the input of the module at a path as features."""

    def apply(variables, batch, key, train):
        def forward(params, stats, batch, key):
            (logits, stats), inputs, _ = _run_recording(lambda: function(params, stats, batch, key, train))
            return logits, inputs.get(path, ()), stats

        logits, features, stats = lower_convolutions(forward)(variables.params, variables.stats, batch, key)
        return Output(tree.at_least_float32(logits), features, stats)

    return apply
