"""Checks from shapes alone that a model fits a data set."""

from typing import Any

import jax
import jax.numpy as jnp

from fedwin import tree
from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.models.adapters.classifier import traced_shapes
from fedwin.models.model import MODELS, Model

BATCH = 2


def check(model: Any, input_shape, num_classes: int, *, input_dtype: Any = jnp.float32, label_shape=()) -> Model:
    """Returns the model if it fits a data set; traces it in training and in evaluation without computing anything.

    >>> from fedwin import models
    >>> model = models.build("digits_mlp", (8, 8, 1), 10)
    >>> models.check(model, (8, 8, 1), 12)
    Traceback (most recent call last):
        ...
    fedwin.errors.UserError: model 'digits_mlp' has 10 outputs, too few for the data's 12 classes; ...

    Args:
      model: a built-in network, one of `from_flax`, `from_haiku` or `from_fedjax`, or a hand-made Model.
      num_classes: labels of the data are in 0..num_classes-1.
      input_dtype: dtype of the stored examples; uint8 images reach the network as float32.
      label_shape: shape of one label, () or (T,) for sequences.

    Raises:
      UserError: when it is not a Model, has parameters that are whole numbers, does not take such examples, does not
        return an Output with logits [B, C] (or [B, T, C] for sequences), has fewer outputs than classes, or returns
        statistics of another structure.
    """
    if not all(hasattr(model, field) for field in Model._fields):
        raise UserError(
            f"a {type(model).__name__} is not a fedwin.models.Model; wrap it with models.from_flax, from_haiku or "
            "from_fedjax."
        )
    owner = f"model '{model.name}'"
    dtype = jnp.float32 if input_dtype == jnp.uint8 else jax.dtypes.canonicalize_dtype(input_dtype)
    batch = {
        "x": jax.ShapeDtypeStruct((BATCH, *input_shape), dtype),
        "y": jax.ShapeDtypeStruct((BATCH, *label_shape), jnp.int32),
        "mask": jax.ShapeDtypeStruct((BATCH,), jnp.float32),
    }
    variables = traced_shapes(owner, input_shape, model.init, jax.random.key(0))
    if not isinstance(variables, Variables):
        raise UserError(
            f"{owner}: init returns a {type(variables).__name__}; it must return fedwin.core.Variables(params, stats)."
        )
    if not all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(variables.params)):
        raise UserError(f"{owner}: init returns parameters that are not floating-point; leave other values out.")
    for train in (True, False):
        apply = lambda variables, batch, key: model.apply(variables, batch, key if train else None, train)
        who = owner if train else f"{owner}, in evaluation, where key is None,"
        output = traced_shapes(who, input_shape, apply, variables, batch, jax.random.key(0))
        _check_output(model.name, output, num_classes, label_shape)
        if train and not tree.alike(output.stats, variables.stats):
            raise UserError(
                f"{owner}: apply returns statistics unlike those of init; the structure, shapes and dtypes must stay."
            )
    if model.num_classes < num_classes:
        raise UserError(f"{owner} says num_classes={model.num_classes}, but the data have {num_classes} classes.")
    return model


def _check_output(name: str, output, num_classes: int, label_shape) -> None:
    """Raises UserError unless the Output of a named model has the shapes of a classifier of the data."""
    owner = f"model '{name}'"
    if not (hasattr(output, "logits") and hasattr(output, "stats")):
        raise UserError(
            f"{owner}: apply returns a {type(output).__name__}; it must return fedwin.models.Output(logits, features, "
            "stats)."
        )
    logits, length = output.logits, tuple(label_shape)
    wanted = f"[B, C] = [{BATCH}, {num_classes}]"
    if length:
        wanted += f" or [B, T, C] = [{BATCH}, {length[0]}, {num_classes}]"
    leading = [(BATCH,), (BATCH, *length)]
    if not isinstance(logits, jax.ShapeDtypeStruct) or logits.shape[:-1] not in leading:
        actual = f"of shape {logits.shape}" if hasattr(logits, "shape") else f"that are a {type(logits).__name__}"
        of_positions = not length and name in MODELS and "predict" in MODELS.options(name)
        remedy = f" One prediction per example: --model={name}:predict=last." * of_positions
        raise UserError(f"{owner} returns logits {actual} for {BATCH} examples; the data need {wanted}.{remedy}")
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise UserError(f"{owner} returns logits of {logits.dtype}; they must be floating-point.")
    if logits.shape[-1] < num_classes:
        raise UserError(
            f"{owner} has {logits.shape[-1]} outputs, too few for the data's {num_classes} classes; give it as many."
        )
