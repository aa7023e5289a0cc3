"""Progress display, the compilation clock, and the length of dispatches."""

import functools
import sys
import time

import jax.monitoring
from tqdm import tqdm

from fedwin import multi_process

# Maximum seconds of a dispatch. True: on a terminal, whose bar should move. False: otherwise, so that a process that
# has 30 s to end, as after SLURM's SIGTERM, can finish its dispatch and save.
PATIENCE = {True: 2.0, False: 10.0}
# The share of these seconds that a dispatch is planned for: clients differ in size, and the machine may be shared.
PLANNED_SHARE = 0.7

_COMPILING = (
    "/jax/core/compile/backend_compile_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
)


class CompileClock:
    """Adds up the seconds that jax spends on lowering and compiling in this process.

    Attributes:
      seconds: the sum so far.
    """

    def __init__(self):
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._add)

    def _add(self, event: str, seconds: float, **_) -> None:
        if event in _COMPILING:
            self.seconds += seconds


_clock = functools.cache(CompileClock)


def compile_seconds() -> float:
    """Returns the seconds spent compiling since the first call of this function."""
    return _clock().seconds


class DispatchLength:
    """Plans how many rounds a dispatch holds, so that none lasts longer than `patience` seconds.

    A dispatch is planned while the previous one runs, so the first two hold one round each; later ones follow the
    slower of the last two that were timed. The length of dispatches does not change any result.

    Args:
      most: maximum number of rounds.
      patience: maximum seconds.
    """

    def __init__(self, most: int, patience: float):
        self.most, self.patience = most, patience
        self._per_round: list[float] = []

    def next_rounds(self) -> int:
        """Returns the number of rounds of the next dispatch to plan; the same in all processes."""
        mine = 1
        if self._per_round:
            mine = max(1, min(self.most, int(PLANNED_SHARE * self.patience / max(*self._per_round, 1e-9))))
        return int(multi_process.all_gather_integers(mine)[0, 0])

    def add(self, rounds: int, seconds: float) -> None:
        """Records how long a dispatch of `rounds` rounds took without compilation."""
        self._per_round = [*self._per_round[-1:], max(seconds, 0.0) / rounds]


class Progress:
    """A tqdm bar on a terminal, a plain line every few seconds otherwise.

    Args:
      label: start of each line; None prints nothing.
      total: number of rounds T.
      done: rounds completed before this process started.

    Attributes:
      patience: maximum seconds between two updates.
    """

    def __init__(self, label: str | None, total: int, done: int):
        self.label, self.total = label, total
        self.patience = PATIENCE[sys.stderr.isatty()]
        self._done, self._printed_at = done, time.monotonic()
        self._rounds, self._seconds = 0, 0.0
        self._bar: tqdm | None = None
        if label is not None and sys.stderr.isatty():
            self._bar = tqdm(
                total=total, initial=done, desc=label, unit="round", postfix="compiling", dynamic_ncols=True, ascii="-#"
            )

    def update(self, done: int, seconds: float, compiling: float, note: str) -> None:
        """Shows the progress after a dispatch.

        Args:
          done: completed rounds.
          seconds: duration of the dispatch.
          compiling: how much of that was compilation.
          note: loss and accuracies.
        """
        rounds, self._done = done - self._done, done
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(rounds)
            self._bar.refresh()
        elif self.label is not None:
            self._print(rounds, seconds, compiling, note)

    def _print(self, rounds: int, seconds: float, compiling: float, note: str) -> None:
        if compiling:
            print(f"{self.label}: compiled in {compiling:.1f} s", file=sys.stderr, flush=True)
        else:
            self._rounds, self._seconds = self._rounds + rounds, self._seconds + seconds
        now = time.monotonic()
        if now - self._printed_at > 5 or self._done == self.total:
            self._printed_at, pace = now, ""
            if self._rounds:
                rate = self._rounds / max(self._seconds, 1e-9)
                shown = f"{rate:.1f} rounds/s" if rate >= 1 else f"{1 / rate:.1f} s/round"
                pace = f"  {shown}  {(self.total - self._done) / rate:.0f} s left"
            print(f"{self.label}: round {self._done}/{self.total}{pace}  {note}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leaves the last line as it is."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
