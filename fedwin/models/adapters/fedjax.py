"""Models of FedJAX as fedwin.models.Model."""

import inspect

from fedwin.errors import UserError
from fedwin.models.adapters.functions import Functions, from_functions
from fedwin.models.model import Model


def from_fedjax(model, sample_batch, num_classes=None, *, classifier_path=None, name="fedjax") -> Model:
    """Wraps a fedjax.Model, whose apply_for_train(params, batch, rng) and apply_for_eval(params, batch) return logits.

    Args:
      model: made from haiku, or any other; features are found for haiku's only.
      sample_batch: a batch with the features that the model reads, e.g. {'x': zeros [1, 28, 28, 1]}.
      num_classes: width of the logits; found by tracing when None.
      classifier_path: (module name,); by default the last hk.Linear whose width is num_classes.
      name: of the model.

    Returns:
      A Model; features = input of the classifier layer, Model.classifier None where no such layer is found.

    Raises:
      UserError: when it is not a fedjax.Model, cannot be traced on sample_batch, or does not return num_classes
        logits.
    """
    missing = [part for part in ("init", "apply_for_train", "apply_for_eval") if not hasattr(model, part)]
    if missing:
        raise UserError(f"{name}: {model!r} has no {missing[0]}; give a fedjax.Model.")
    # Below fedjax's own jit, so that the classifier's input can be read.
    init, train, evaluate = map(inspect.unwrap, (model.init, model.apply_for_train, model.apply_for_eval))
    functions = Functions(
        lambda key: (init(key), ()),
        lambda params, stats, batch, key: (train(params, batch, key), stats),
        lambda params, stats, batch, key: (evaluate(params, batch), stats),
    )
    return from_functions(functions, sample_batch, num_classes, classifier_path, name)
