"""Networks of haiku as fedwin.models.Model."""

import inspect

from fedwin.errors import UserError
from fedwin.models.adapters.functions import Functions, from_functions
from fedwin.models.model import Model


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
    """Wraps hk.transform or hk.transform_with_state of a function of (batch, **kwargs) that returns logits.

    >>> import haiku as hk
    >>> import numpy as np
    >>> network = hk.transform(lambda batch: hk.Linear(10)(hk.Flatten()(batch["x"])))
    >>> model = from_haiku(network, {"x": np.zeros((1, 8, 8, 1), np.float32)})
    >>> model.num_classes, model.classifier_path
    (10, ('linear',))

    Args:
      transformed: the transformed function, called with a dict batch (at least 'x').
      sample_batch: a batch to initialise with, e.g. {'x': zeros [1, 28, 28, 1]}.
      num_classes: width of the logits; found by tracing when None.
      train_kwargs: keyword arguments in training, e.g. {'is_train': True}.
      eval_kwargs: keyword arguments in evaluation, e.g. {'is_train': False}.
      classifier_path: (module name,); by default the last hk.Linear whose width is num_classes.
      name: of the model.

    Returns:
      A Model; features = input of the classifier layer, Model.classifier None where no such layer is found.

    Raises:
      UserError: when the function is not transformed, keeps state that its transform does not hand out, cannot be
        traced on sample_batch, or returns no logits or not num_classes of them.
    """
    import haiku as hk

    if not isinstance(transformed, (hk.Transformed, hk.TransformedWithState)):
        raise UserError(f"{name}: {transformed!r} is not a haiku transform; wrap the function in hk.transform.")
    if "rng" not in inspect.signature(transformed.apply).parameters:
        raise UserError(f"{name}: apply needs a key for training; give it the transform, not hk.without_apply_rng's.")
    train_kwargs, eval_kwargs = train_kwargs or {}, eval_kwargs or {}
    stateful = isinstance(transformed, hk.TransformedWithState)

    def init(key):
        values = transformed.init(key, sample_batch, **train_kwargs)
        if not stateful and isinstance(values, tuple):
            raise UserError(
                f"{name}: hk.Transformed around functions with state; give the result of hk.transform_with_state "
                "itself."
            )
        return values if stateful else (values, ())

    functions = Functions(init, *(_call(transformed, stateful, kwargs) for kwargs in (train_kwargs, eval_kwargs)))
    return from_functions(functions, sample_batch, num_classes, classifier_path, name)


def _call(transformed, stateful: bool, kwargs):
    """Returns (params, stats, batch, key) -> (logits, stats) of a transform."""

    def function(params, stats, batch, key):
        if stateful:
            return transformed.apply(params, stats, key, batch, **kwargs)
        return transformed.apply(params, key, batch, **kwargs), stats

    return function
