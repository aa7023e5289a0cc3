"""Callbacks: called after each evaluation in process 0; all processes learn whether the seed stops."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedwin import multi_process
from fedwin.errors import UserError, user_code

# Returned by a callback, ends the training of the seed that was evaluated.
STOP = True

# Read-out -> metric -> value.
ReadOuts = Mapping[str, Mapping[str, float]]
# A line of metrics.jsonl: seed, round, read-out -> metric -> value, train_loss, bytes_down, bytes_up, seconds; where
# cohorts vary, also empty_rounds and cohort_sizes (of the rounds since the line before).
Line = dict[str, Any]


class Callback:
    """Base class of callbacks that keep state; a callback without state can be a plain function.

        >>> class Best(Callback):
        ...     def __init__(self):
        ...         self.best = {}
        ...     def resume(self, seed, evaluations):
        ...         for round, read_outs in evaluations:
        ...             self(round, seed, read_outs)
        ...     def __call__(self, round, seed, read_outs):
        ...         self.best[seed] = max(self.best.get(seed, 0.0), read_outs["model"]["accuracy"])

    Attributes:
      may_stop: whether the returned value counts. If it does, a dispatch ends at every evaluation, so that a stopped
        seed computes no further rounds. If not, the callback receives the evaluations of a dispatch together.
    """

    may_stop = True

    def resume(self, seed: int, evaluations: Sequence[tuple[int, ReadOuts]]) -> None:
        """Receives the earlier evaluations of a seed that resumes; the default does nothing.

        Args:
          evaluations: (completed rounds, read-outs) of each evaluation up to the checkpoint.
        """

    def __call__(self, round: int, seed: int, read_outs: ReadOuts) -> bool | None:
        """Receives an evaluation; called by process 0 alone.

        Args:
          round: completed rounds.
          read_outs: read-out -> metric -> value, a copy.

        Returns:
          fedwin.STOP (True) to end the seed after this round; None or False to continue.
        """
        raise NotImplementedError


class FunctionCallback(Callback):
    """A callback from a function (round, seed, read-outs) -> fedwin.STOP, True, False or None."""

    def __init__(self, function: Callable[[int, int, ReadOuts], bool | None]):
        self.function = function

    def __call__(self, round: int, seed: int, read_outs: ReadOuts) -> bool | None:
        return self.function(round, seed, read_outs)


def as_callback(on_eval: object) -> Callback | None:
    """Returns `on_eval` of fedwin.run as a Callback; None stays None; raises UserError if it can't be called."""
    if on_eval is None or isinstance(on_eval, Callback):
        return on_eval
    if isinstance(on_eval, type) or not callable(on_eval):
        raise UserError(
            f"on_eval={on_eval!r} is not a function; give a function (round, seed, read_outs), or an object of a class "
            f"derived from fedwin.callbacks.Callback."
        )
    return FunctionCallback(on_eval)


def read_outs_of(line: Line) -> dict[str, dict[str, float]]:
    """Returns read-out -> metric -> value of a line of metrics.jsonl, with numbers for the file's 'nan' and 'inf'."""
    return {
        name: {metric: float(value) for metric, value in metrics.items()}
        for name, metrics in line.items()
        if isinstance(metrics, dict)
    }


class RunCallbacks:
    """Calls the callbacks of a run after each evaluation.

    All processes of a run call the methods with the same seeds and rounds; process 0 alone calls the callbacks.

    Args:
      callbacks: in the order in which they are called; only those of process 0 are used.
      listener: called with each new line of metrics.jsonl, in every process.

    Attributes:
      may_stop: whether any callback may stop a seed; the same in all processes.
    """

    def __init__(
        self, callbacks: Iterable[Callback], num_rounds: int, listener: Callable[[Line], object] = lambda line: None
    ):
        self.callbacks = tuple(callbacks) if multi_process.is_first() else ()
        self.num_rounds, self.listener = num_rounds, listener
        self._active, self.may_stop = multi_process.broadcast_object(
            [bool(self.callbacks), any(callback.may_stop for callback in self.callbacks)]
        )

    def resume(self, seed: int, read: Callable[[], Sequence[Line]]) -> None:
        """Gives the callbacks a seed's earlier evaluations, which `read` reads in process 0; UserError if one fails."""

        def resume() -> None:
            evaluations = [(line["round"], read_outs_of(line)) for line in read()] if self.callbacks else []
            for callback in self.callbacks:
                with user_code(None, f"on_eval failed while seed {seed} resumes"):
                    callback.resume(seed, evaluations)

        if self._active:
            multi_process.run_on_all(resume)

    def evaluated(self, line: Line) -> bool:
        """Sends an evaluation to listener and callbacks; returns whether the seed stops before its last round.

        Raises:
          UserError: a callback raises an exception, or returns neither a bool nor None.
        """
        self.listener(line)
        if not self._active:
            return False
        # All of them, even after one that stops the seed.
        call = lambda: any([_called(callback, line) and callback.may_stop for callback in self.callbacks])
        stop = multi_process.run_on_all(call)
        return bool(multi_process.broadcast_object(stop)) and line["round"] < self.num_rounds


def _called(callback: Callback, line: Line) -> bool:
    """Calls a callback with an evaluation; returns whether the seed stops."""
    round, seed = line["round"], line["seed"]
    with user_code(None, f"on_eval failed after round {round} of seed {seed}"):
        answer = callback(round, seed, read_outs_of(line))
    if answer is not None and not isinstance(answer, (bool, np.bool_)):
        raise UserError(
            f"on_eval returned {answer!r}; return fedwin.STOP (True) to end the seed, None or False to continue."
        )
    return bool(answer)
