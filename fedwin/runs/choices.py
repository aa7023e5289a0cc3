"""The names that a Config gives (algorithm, model, loss ...), parsed and checked."""

from typing import NamedTuple

from fedwin.algorithms import ALGORITHMS
from fedwin.augment import AUGMENTATIONS
from fedwin.data import PARTITIONS
from fedwin.errors import UserError
from fedwin.losses import LOSSES
from fedwin.models import MODELS
from fedwin.observers import OBSERVERS
from fedwin.registry.choices import Choice
from fedwin.runs.config import Config
from fedwin.wrappers import WRAPPERS


class Choices(NamedTuple):
    """The names that a Config gives, parsed and checked once.

    Attributes:
      algorithm: with --server_lr and --weighting among its parameters.
      wrappers: innermost first.
      observers: in the order given.
      loss: the local loss.
      augmentation: of training images.
      model: with the dtype of --precision; None where an object takes its place.
      partition: None for the data set's own.
    """

    algorithm: Choice
    wrappers: list[Choice]
    observers: list[Choice]
    loss: Choice
    augmentation: Choice
    model: Choice | None
    partition: Choice | None


def algorithm_choice(config: Config) -> Choice:
    """Returns the algorithm with --server_lr and --weighting among its parameters.

    Raises:
      UserError: it is unknown, does not take them, or they are given twice.
    """
    choice = ALGORITHMS.check(config.algorithm)
    options = ALGORITHMS.options(choice.name)
    for name, value in (("server_lr", config.server_lr), ("weighting", config.weighting)):
        if not value:
            continue
        if name not in options:
            raise UserError(f"algorithm '{choice.name}' has no {name}; omit --{name}.")
        if choice.params.get(name, value) != value:
            raise UserError(f"{name} is given twice: --{name}={value} and --algorithm={config.algorithm}; keep one.")
        choice = choice.with_params(**{name: value})
    return choice


def model_choice(config: Config) -> Choice:
    """Returns --model with the dtype of --precision among its parameters, where it takes one."""
    choice = MODELS.check(config.model)
    dtype = {"bfloat16": "bfloat16", "float64": "float64"}.get(config.precision)
    if dtype is None or "dtype" not in MODELS.options(choice.name) or "dtype" in choice.params:
        return choice
    return choice.with_params(dtype=dtype)


def choices_of(config: Config, named_model: bool = True) -> Choices:
    """Parses and checks the names of a Config.

    Args:
      config: the flags.
      named_model: whether the model is given by name, not as an object.

    Raises:
      UserError: for an unknown name or parameter.
    """
    return Choices(
        algorithm_choice(config),
        [WRAPPERS.check(text) for text in config.wrap],
        [OBSERVERS.check(text) for text in config.observe],
        LOSSES.check(config.loss),
        AUGMENTATIONS.check(config.augment),
        model_choice(config) if named_model else None,
        PARTITIONS.check(config.partition) if config.partition else None,
    )
