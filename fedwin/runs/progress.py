"""Progress display, the compilation clock, and the length of dispatches."""

import sys
import time

import jax.monitoring

from fedwin import multi_process

# Maximum seconds of a dispatch. True: on a terminal, whose bar should move. False: elsewhere, so that a process that
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


_clock: list[CompileClock] = []


def compile_seconds() -> float:
    """Returns the seconds spent compiling since the first call of this function."""
    if not _clock:
        _clock.append(CompileClock())
    return _clock[0].seconds


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
    """A bar with rounds per second and ETA on a terminal, a plain line every few seconds elsewhere.

    Args:
      label: start of each line; None prints nothing.
      total: number of rounds T.
      done: rounds completed before this process started.

    Attributes:
      patience: maximum seconds between two updates.
    """

    def __init__(self, label: str | None, total: int, done: int):
        self.label, self.total = label, total
        self._printed_at = time.monotonic()
        self.patience = PATIENCE[sys.stderr.isatty()]
        self._rounds, self._seconds, self._compiling = 0, 0.0, 0.0
        self.bar = None
        if label is not None and sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, initial=done, desc=label, unit="round", dynamic_ncols=True)

    def update(self, done: int, rounds: int, seconds: float, compiling: float, note: str) -> None:
        """Shows the progress after a dispatch.

        Args:
          done: completed rounds.
          rounds: number of rounds of the dispatch.
          seconds: its duration.
          compiling: how much of that was compilation.
          note: loss and accuracies.
        """
        if compiling:
            self._compiling += compiling
            if self.bar is None and self.label is not None:
                print(f"{self.label}: compiled in {compiling:.1f} s", file=sys.stderr, flush=True)
        else:
            self._rounds, self._seconds = self._rounds + rounds, self._seconds + seconds
        if self.label is None:
            return
        if self.bar is not None:
            self.bar.set_postfix_str(note, refresh=False)
            self.bar.update(done - self.bar.n)
            return
        now = time.monotonic()
        if now - self._printed_at > 5 or done == self.total:
            self._printed_at = now
            pace = ""
            if self._rounds:
                rate = self._rounds / max(self._seconds, 1e-9)
                speed = f"{rate:.1f} rounds/s" if rate >= 1 else f"{1 / rate:.1f} s a round"
                pace = f"  {speed}  {(self.total - done) / rate:.0f} s left"
            print(f"{self.label}: round {done}/{self.total}{pace}  {note}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Closes the bar."""
        if self.bar is not None:
            self.bar.close()
