"""A Model of plain functions in which haiku's layers are looked for: what haiku and FedJAX have in common."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.models.adapters.classifier import at_least_float32, is_linear, linear, locate, refusal, subtree, width_of
from fedwin.models.convolution import lower_convolutions
from fedwin.models.model import Model, Output


class Functions(NamedTuple):
    """init: key -> (params, stats); train, evaluate: (params, stats, batch, key) -> (logits, stats)."""

    init: Callable
    train: Callable
    evaluate: Callable


def _catching(function, path):
    """Runs `function`, returns (result, input of the haiku module at `path`, [((module name,), output width)])."""
    import haiku as hk

    caught, seen = [], []

    def intercept(next_fun, args, kwargs, context):
        if context.method_name == "__call__" and isinstance(context.module, hk.Linear):
            seen.append(((context.module.module_name,), context.module.output_size))
            if path and context.module.module_name == path[0]:
                caught.append(args[0])
        return next_fun(*args, **kwargs)

    with hk.intercept_methods(intercept):
        result = function()
    # A module that is called once per time step has as many inputs: they are not one array of features.
    return result, caught[0] if len(caught) == 1 else (), seen


def _trace(functions: Functions, sample_batch, name: str):
    """Returns (shapes of params, of stats, of logits, linear layers seen); raises UserError where that fails."""
    seen = []

    def probe(key):
        params, stats = functions.init(key)
        (logits, _), _, found = _catching(lambda: functions.evaluate(params, stats, sample_batch, key), None)
        seen.extend(found)
        return params, stats, logits

    try:
        return *jax.eval_shape(probe, jax.random.key(0)), seen
    except UserError:
        raise
    except Exception as error:  # whatever a foreign network raises at an input that it was not made for
        if "transform_with_state" in str(error):
            raise UserError(f"{name} keeps state; use hk.transform_with_state instead of hk.transform.") from error
        raise refusal(name, sample_batch["x"].shape[1:], error) from error


def from_functions(functions: Functions, sample_batch, num_classes, classifier_path, name: str) -> Model:
    """Returns the Model of functions that may be made of haiku's modules.

    Args:
      functions: of the network.
      sample_batch: a batch to initialise with.
      num_classes: width of the logits; found by tracing when None.
      classifier_path: (module name,), None for the last hk.Linear whose width is num_classes.
      name: of the model.

    Raises:
      UserError: when the functions cannot be traced on sample_batch, or return no logits or not num_classes of them.
    """
    if not hasattr(sample_batch, "get") or not hasattr(sample_batch.get("x"), "shape"):
        raise UserError(
            f"{name}: sample_batch must be a dict with an array 'x', such as {{'x': zeros [1, 28, 28, 1]}}."
        )
    params, stats, logits, seen = _trace(functions, sample_batch, name)
    width = width_of(name, logits, num_classes)
    path = locate(name, params, classifier_path, seen, width)

    def classifier(params, features):
        return linear(subtree(params, path), features, "w", "b")

    def whole(params, stats, key):
        apply = _apply(functions, path)
        return classifier(params, apply(Variables(params, stats), sample_batch, key, False).features)

    alone, watched = is_linear(params, path, "w"), path
    if alone:
        try:
            jax.eval_shape(whole, params, stats, jax.random.key(0))
        except (jax.errors.UnexpectedTracerError, TypeError):
            # The layer runs inside a jit of the model's own, or once per time step: no array of features to return.
            alone, watched = False, ()
    init = lambda key: Variables(*functions.init(key))
    return Model(init, _apply(functions, watched), classifier if alone else None, path, name, width)


def _apply(functions: Functions, watched: tuple[str, ...]):
    """Returns Model.apply, with the input of the module `watched` as features."""

    def apply(variables, batch, key, train):
        function = functions.train if train else functions.evaluate

        def forward(params, stats, batch, key):
            (logits, stats), features, _ = _catching(lambda: function(params, stats, batch, key), watched)
            return logits, features, stats

        logits, features, stats = lower_convolutions(forward)(variables.params, variables.stats, batch, key)
        return Output(at_least_float32(logits), features, stats)

    return apply
