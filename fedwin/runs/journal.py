"""What one seed's run writes down while it trains: evaluations, checkpoints, divergence."""

from typing import Any

import numpy as np

from fedwin import multi_process
from fedwin.runs import signals
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.metrics_log import LinesHash, MetricsLog


class Journal:
    """Evaluations go to the logbook, states to checkpoints; both may be None, for runs that leave nothing behind.

    Args:
      seed: whose run.
      logbook: where evaluations go.
      checkpoints: where states go.
      rows: how a state's client table is saved (residence.rows).
      bytes_per_round: (down, up) of one round.
      seconds: training time so far, compilation included.
      compile_seconds: how much of it was compilation.
      steady: rounds and seconds of the dispatches that compiled nothing.
      diverged_at: the round whose loss was not finite, or None.

    Attributes:
      lines: the evaluations of this process.
      saved_round: of its newest checkpoint of this process, or None.
    """

    def __init__(
        self,
        seed: int,
        logbook: MetricsLog | None = None,
        checkpoints: Checkpoints | None = None,
        rows=None,
        *,
        bytes_per_round: tuple[int, int] = (0, 0),
        seconds: float = 0.0,
        compile_seconds: float = 0.0,
        steady: tuple[int, float] = (0, 0.0),
        diverged_at: int | None = None,
    ):
        self.seed, self.logbook, self.checkpoints, self.rows = seed, logbook, checkpoints, rows
        self.down, self.up = bytes_per_round
        self.seconds, self.compile_seconds, self.diverged_at = seconds, compile_seconds, diverged_at
        self.steady = (steady[0], steady[1])
        self.lines: list[dict[str, Any]] = []
        self._hash = LinesHash(logbook.lines(seed) if logbook is not None else ())
        self.saved_round: int | None = None

    def took(self, rounds: int, seconds: float, compiling: float) -> None:
        """Adds up what a dispatch took, and how much of it was compilation."""
        self.seconds, self.compile_seconds = self.seconds + seconds, self.compile_seconds + compiling
        if not compiling:
            self.steady = (self.steady[0] + rounds, self.steady[1] + seconds)

    def evaluated(self, after: int, values: dict[str, dict[str, Any]], train_loss: float | None) -> None:
        """Writes the evaluation after so many completed rounds: read-out -> metric -> value."""
        line: dict[str, Any] = {"seed": self.seed, "round": after}
        line |= {name: {metric: float(v) for metric, v in metrics.items()} for name, metrics in values.items()}
        line |= {
            "train_loss": train_loss,
            "bytes_down": after * self.down,
            "bytes_up": after * self.up,
            "seconds": round(self.seconds, 3),
        }
        self.lines.append(line)
        self._hash.add(line)
        if self.logbook is not None:
            self.logbook.write(line)

    def dispatched(self, completed: int, metrics, probes, flags: np.ndarray, count: int, stop: bool) -> np.ndarray:
        """Writes what a dispatch of `count` rounds found; evaluations after a divergence are left out if `stop`.

        Args:
          completed: rounds before the dispatch.
          metrics: name -> Mean with leading axis [R_max].
          probes: read-out -> metric -> values [R_max].
          flags: which rounds were evaluated [R_max].
          count: rounds of the dispatch.
          stop: end at the first divergence.

        Returns:
          The training loss of every round [R_max].
        """
        loss = metrics["loss"].value if "loss" in metrics else np.zeros(len(flags))
        for r in range(count):
            after = completed + r + 1
            values = None
            if flags[r]:
                values = {name: {m: v[r] for m, v in found.items()} for name, found in probes.items()}
            bad = not np.isfinite(loss[r]) or (values is not None and not np.isfinite(values["model"]["loss"]))
            if bad and self.diverged_at is None:
                self.diverged_at = after
            if values is not None:
                self.evaluated(after, values, float(loss[r]))
            if bad and stop:
                break
        return loss

    def save(self, completed: int, run) -> None:
        """Makes a checkpoint of the state after so many rounds; its evaluations reach the disk first."""
        if self.checkpoints is None:
            return
        self.write(completed, run)
        # One of several processes ends after a dispatch, when all have agreed to: the others would lose it elsewhere.
        if (watch := signals.active()) is not None and multi_process.count() == 1:
            watch.saved()

    def write(self, completed: int, run) -> None:
        """Makes a checkpoint without telling that everything is saved: other seeds' states may not be."""
        assert self.checkpoints is not None
        self.flush()
        about = {
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "steady": list(self.steady),
            "seed": self.seed,
            "diverged_at": self.diverged_at,
            "evaluations": self._hash.value,
        }
        self.checkpoints.save(completed, self.rows.checkpointed(multi_process.whole(run)), about)
        self.rows.keep()
        self.saved_round = completed

    def unsaved(self) -> None:
        """Tells that rounds have been computed since the last checkpoint."""
        if self.checkpoints is not None and (watch := signals.active()) is not None:
            watch.unsaved()

    def end_if_interrupted(self, completed: int, run, ended: bool) -> None:
        """Saves the state after so many rounds and raises Interrupted, if Ctrl-C or SIGTERM was heard.

        Args:
          completed: the rounds.
          run: the state.
          ended: the seed ends here because it diverged.
        """
        watch = signals.active()
        heard = int(multi_process.numbers(0 if watch is None else watch.requested or 0).max())
        if watch is None or not heard or self.checkpoints is None:
            return
        watch.ask(heard)
        if ended:  # by divergence: such a state is no place to resume from
            raise signals.Interrupted(heard, "interrupted; the same command resumes.")
        if self.saved_round != completed:
            self.save(completed, run)
        raise signals.Interrupted(heard, f"interrupted; saved after round {completed}, the same command resumes there.")

    def ended(self) -> None:
        """Tells that nothing is left to be saved."""
        self.flush()
        if (watch := signals.active()) is not None:
            watch.saved()

    def flush(self) -> None:
        """Brings what was written to the disk."""
        if self.logbook is not None:
            self.logbook.flush()

    def note(self, loss: float) -> str:
        """Returns loss and latest accuracies for the progress line."""
        return noted(loss, self.lines[-1:])


def noted(loss: float, latest: list[dict[str, Any]]) -> str:
    """Returns loss and accuracies for the progress line, the means of some evaluations of the same read-outs."""
    names = [name for name, found in latest[0].items() if isinstance(found, dict)] if latest else []
    means = (f"  {name} {np.mean([line[name]['accuracy'] for line in latest]):.4f}" for name in names)
    return f"loss {loss:.4f}" + "".join(means)
