"""What a person sees of a run while it trains, and how long its dispatches may be."""

import sys
import time

import jax.monitoring

from fedwin import multi_process

# Seconds that a dispatch may last on a terminal, whose bar should move, and elsewhere: a process that is told to end
# within 30 s, as by SLURM's SIGTERM, can finish it and save.
PATIENCE = {True: 2.0, False: 10.0}
# How much of that is planned with: clients differ in size, and other processes want the machine too.
PLANNED = 0.7

_COMPILING = (
    "/jax/core/compile/backend_compile_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
)


class CompileClock:
    """Adds up the seconds that jax spends on lowering and compiling in this process."""

    def __init__(self):
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, seconds: float, **_) -> None:
        if event in _COMPILING:
            self.seconds += seconds


_clock: list[CompileClock] = []


def compile_seconds() -> float:
    """Returns the seconds spent compiling since the first call of this function."""
    if not _clock:
        _clock.append(CompileClock())
    return _clock[0].seconds


class DispatchLength:
    """How many rounds the next dispatch should hold, so that none lasts longer than `patience` seconds.

    A dispatch is planned while the one before it runs, so the first two hold one round each; later ones follow the
    slower of the last two that were timed. Where dispatches are cut changes no number.

    Args:
      most: the most rounds of a dispatch.
      patience: seconds.
    """

    def __init__(self, most: int, patience: float):
        self.most, self.patience = most, patience
        self._per_round: list[float] = []

    def wish(self) -> int:
        """Returns the rounds that the next dispatch to be planned should hold; the same in all processes."""
        mine = 1
        if self._per_round:
            mine = max(1, min(self.most, int(PLANNED * self.patience / max(*self._per_round, 1e-9))))
        return int(multi_process.numbers(mine)[0, 0])

    def took(self, rounds: int, seconds: float) -> None:
        """Tells how long a dispatch took without compilation."""
        self._per_round = [*self._per_round[-1:], max(seconds, 0.0) / rounds]


class Progress:
    """A bar with rounds per second and ETA on a terminal, a plain line every few seconds elsewhere.

    Args:
      label: what begins each line; None = print nothing.
      total: rounds in all.
      done: rounds completed before this process began.
    """

    def __init__(self, label: str | None, total: int, done: int):
        self.label, self.total = label, total
        self.spoken = time.monotonic()
        self.patience = PATIENCE[sys.stderr.isatty()]
        self._rounds, self._seconds, self._compiling = 0, 0.0, 0.0
        self.bar = None
        if label is not None and sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, initial=done, desc=label, unit="round", dynamic_ncols=True)

    def update(self, done: int, rounds: int, seconds: float, compiling: float, note: str) -> None:
        """Shows where the run is.

        Args:
          done: completed rounds.
          rounds: those of the last dispatch.
          seconds: what it took.
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
        if now - self.spoken > 5 or done == self.total:
            self.spoken = now
            pace = ""
            if self._rounds:
                rate = self._rounds / max(self._seconds, 1e-9)
                speed = f"{rate:.1f} rounds/s" if rate >= 1 else f"{1 / rate:.1f} s a round"
                pace = f"  {speed}  {(self.total - done) / rate:.0f} s left"
            print(f"{self.label}: round {done}/{self.total}{pace}  {note}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the bar."""
        if self.bar is not None:
            self.bar.close()
