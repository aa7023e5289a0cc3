"""The names that a Config gives (algorithm, model, loss ...), parsed and checked."""

from collections.abc import Sequence
from typing import NamedTuple

from fedwin.algorithms import ALGORITHMS
from fedwin.augment import AUGMENTATIONS
from fedwin.data import PARTITIONS
from fedwin.errors import UserError
from fedwin.local import Batches
from fedwin.losses import LOSSES
from fedwin.models import MODELS
from fedwin.observers import OBSERVERS
from fedwin.registry.choices import Choice
from fedwin.runs.config import MOST, Config
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


def batch_size(config: Config, largest: int) -> int:
    """Returns the batch size that is needed: places beyond the largest client's examples would only ever be empty.

    Args:
      config: the flags.
      largest: examples of the largest client.

    Raises:
      UserError: the order in which a client sees its examples has more places than an index reaches.
    """
    size = min(config.batch_size, largest) if config.batching == "epoch" else config.batch_size
    places = Batches(size, config.batching).places(largest, config.local_epochs)
    if places > MOST:
        raise UserError(
            f"local_epochs={config.local_epochs}, batch_size={config.batch_size}: the order in which a client of "
            f"{largest} examples sees them has {places:,} places, but an index reaches only {MOST:,}; set a smaller "
            f"--local_epochs or --batch_size."
        )
    return size


def _check_once(wrappers: Sequence[Choice]) -> None:
    """Raises UserError for a wrapper that is given twice."""
    names = [choice.name for choice in wrappers]
    for choice in wrappers:
        if names.count(choice.name) > 1:
            raise UserError(f"wrap={choice}: wrapper '{choice.name}' is given twice; keep one.")


def check_training(choices: Choices, num_rounds: int) -> None:
    """Checks that whatever changes training is given once, and that it and what observes begin before the run ends.

    Args:
      choices: the run's; the fact `warmup_horizon` of an algorithm or wrapper names the parameter that says how many rounds it
        needs before it begins. (Observers' windows may be longer than the run: they are means of what there is.)
      num_rounds: T.

    Raises:
      UserError: a wrapper that is given twice; a window, delay or start that the run would never reach.
    """
    _check_once(choices.wrappers)
    around = ((WRAPPERS, choice) for choice in choices.wrappers)
    watching = ((OBSERVERS, choice) for choice in choices.observers)
    for registry, choice in ((ALGORITHMS, choices.algorithm), *around, *watching):
        who, params = f"{registry.kind} '{choice.name}'", registry.options(choice.name) | choice.params
        name = registry.entries[choice.name].facts.get("warmup_horizon", "")
        span, start = params.get(name), params.get("start")
        if isinstance(span, int) and span >= num_rounds + (name == "window"):
            raise UserError(
                f"{who}: with {name}={span} it would never begin in a run of num_rounds={num_rounds}; set a smaller "
                f"{name}, or raise --num_rounds."
            )
        if isinstance(start, int) and start >= num_rounds:
            raise UserError(
                f"{who}: start={start} comes after the last round, {num_rounds - 1}; set an earlier start, a fraction "
                f"such as 0.75, or raise --num_rounds."
            )
