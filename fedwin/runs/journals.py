"""What seeds that train in lockstep write down: each has a journal of its own, which is what it would be alone."""

from collections.abc import Mapping

import jax
import numpy as np

from fedwin.residence import lanes
from fedwin.runs import interruption
from fedwin.runs.journal import Journal, noted


class Journals:
    """The journals of some lanes, with the methods of one that the loop over dispatches calls.

    The time of a dispatch is shared out among the seeds that train in it, so that their seconds add up to those of the
    clock, as where one trains after the other.

    Args:
      journals: lane -> the journal of its seed.
      stop: whether a seed ends when it diverges; the others go on, and its lane is not read any more.
    """

    def __init__(self, journals: Mapping[int, Journal], stop: bool):
        self.journals, self.stop = dict(journals), stop

    @property
    def going(self) -> dict[int, Journal]:
        """Those that have not ended."""
        return {lane: own for lane, own in self.journals.items() if not (self.stop and own.diverged_at is not None)}

    @property
    def diverged_at(self) -> int | None:
        """The round whose loss was not finite in the last seed that was left; None as long as one goes on."""
        return None if self.going else max(own.diverged_at or 0 for own in self.journals.values())

    def took(self, rounds: int, seconds: float, compiling: float) -> None:
        """Adds up what a dispatch took, and how much of it was compilation."""
        going = self.going.values()
        for own in going:
            own.took(rounds, seconds / len(going), compiling / len(going))

    def dispatched(self, completed: int, metrics, probes, flags: np.ndarray, count: int, stop: bool) -> np.ndarray:
        """Writes what a dispatch found, as Journal.dispatched does; leaves are [R_max, lanes].

        Returns:
          The training loss of every round [R_max], a mean over the seeds.
        """
        losses = []
        for lane, own in self.going.items():
            in_lane = lambda found, lane=lane: jax.tree.map(lambda leaf: leaf[:, lane], found)
            losses.append(own.dispatched(completed, in_lane(metrics), in_lane(probes), flags, count, stop))
        return np.mean(losses, 0)

    def save(self, completed: int, run) -> None:
        """Makes a checkpoint of every seed that has not ended."""
        for lane, own in self.going.items():
            if own.checkpoints is not None and own.saved_round != completed:
                own.write(completed, lanes.taken(run, lane))
        if (watch := interruption.active()) is not None:
            watch.saved()

    def unsaved(self) -> None:
        """Tells that rounds have been computed since the last checkpoint."""
        for own in self.journals.values():
            own.unsaved()

    def end_if_interrupted(self, completed: int, run, ended: bool) -> None:
        """Saves the states after so many rounds and raises Interrupted, if Ctrl-C or SIGTERM was heard.

        Args:
          completed: the rounds.
          run: the state of all lanes.
          ended: all seeds end here because they diverged.
        """
        watch = interruption.active()
        if watch is None or not watch.requested or all(own.checkpoints is None for own in self.journals.values()):
            return
        if ended:
            raise interruption.Interrupted(watch.requested, "interrupted; the same command resumes.")
        self.save(completed, run)
        raise interruption.Interrupted(
            watch.requested, f"interrupted; saved after round {completed}, the same command resumes there."
        )

    def note(self, loss: float) -> str:
        """Returns loss and latest accuracies for the progress line, means over the seeds that have not ended."""
        return noted(loss, [own.lines[-1] for own in (self.going or self.journals).values() if own.lines])
