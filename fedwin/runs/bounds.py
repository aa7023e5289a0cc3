"""Bounds that depend on more than one flag: what would never begin, and what no index reaches."""

from collections.abc import Sequence

from fedwin.algorithms import ALGORITHMS
from fedwin.errors import UserError
from fedwin.local import Batches
from fedwin.observers import OBSERVERS
from fedwin.registry import Choice
from fedwin.runs.choices import Choices
from fedwin.runs.config import Config
from fedwin.runs.fields import MOST
from fedwin.wrappers import WRAPPERS


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
