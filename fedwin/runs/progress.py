"""Progress display, the compilation clock, and the length of dispatches."""

import contextlib
import functools
import re
import sys
import textwrap
import time
import warnings

import jax.monitoring
from tqdm import tqdm

from fedwin import multi_process
from fedwin.runs import signals

# Maximum seconds of a dispatch. True: on a terminal, whose bar should move. False: otherwise, so that a process that
# has 30 s to end, as after SLURM's SIGTERM, can finish its dispatch and save.
PATIENCE = {True: 2.0, False: 10.0}
# The share of these seconds that a dispatch is planned for: clients differ in size, and the machine may be shared.
PLANNED_SHARE = 0.7

# Fewest cells of a bar, and the columns that stay free at the end of a line, for the terminal's own ^C.
_LEAST_BAR, _MARGIN = 10, 3
# Columns of a terminal of unknown width.
_COLUMNS = 80
_BAR_FORMAT = "{desc}: {percentage:.0f} % |{bar}| {n_fmt}/{total_fmt}  {elapsed}<{remaining}  {pace}"

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


def display_lines(
    label: str, done: int, total: int, elapsed: float, rate: float | None, note: str, columns: int
) -> list[str]:
    """Returns the lines of the progress display, each at most as wide as the terminal.

    Bar and note share a line if the bar has at least 10 cells next to the note. Otherwise the note has lines of its
    own, and in a narrow terminal the bar is left out.

    Args:
      label: of the run's seeds.
      done: completed rounds.
      total: number of rounds T.
      elapsed: seconds since the start.
      rate: rounds per second; None: unknown.
      note: loss and accuracies, separated by two spaces.
      columns: width of the terminal.
    """
    width = max(columns - _MARGIN, 1)
    meter = functools.partial(
        tqdm.format_meter, done, total, elapsed, prefix=label, rate=rate, initial=done, ascii="-#", pace=_pace(rate)
    )
    text = meter(bar_format=_BAR_FORMAT.replace("|{bar}|", ""))
    for suffix, lines in ((f"  {note}", []), ("", _wrapped(note, width))):
        if len(text) + len("||") + _LEAST_BAR + len(suffix) <= width:
            return [meter(bar_format=_BAR_FORMAT, ncols=width - len(suffix)) + suffix, *lines]
    return _wrapped(text, width) + _wrapped(note, width)


def _pace(rate: float | None) -> str:
    return "? rounds/s" if rate is None else f"{rate:.1f} rounds/s" if rate >= 1 else f"{1 / rate:.1f} s/round"


def _wrapped(text: str, width: int) -> list[str]:
    """Returns a text in lines of at most `width` characters, broken between items, which two spaces separate."""
    items = re.sub("(?<! ) (?! )", "\xa0", text)
    return [line.replace("\xa0", " ") for line in textwrap.wrap(items, width, break_on_hyphens=False)]


class Display:
    """Lines at the bottom of the terminal, each drawn in place by a tqdm.

    Messages of signals and warnings erase them first, so that they are on separate lines.
    """

    def __init__(self):
        self._bars: list[tqdm] = []
        self.draw([""])
        self._show_warning = warnings.showwarning
        warnings.showwarning = self._warn
        signals.before_message.append(self.erase)

    @property
    def columns(self) -> int:
        """The width of the terminal; tqdm leaves the last column free."""
        return (self._bars[0].format_dict["ncols"] or _COLUMNS - 1) + 1

    def draw(self, lines: list[str]) -> None:
        """Replaces the lines on the terminal."""
        while len(self._bars) > len(lines):
            self._bars[-1].leave = False
            self._bars.pop().close()
        for position in range(len(self._bars), len(lines)):
            self._bars.append(tqdm(bar_format="{desc}", position=position, leave=True, dynamic_ncols=True))
        for bar, line in zip(self._bars, lines, strict=True):
            bar.set_description_str(line)

    def erase(self) -> None:
        """Erases the lines until they are drawn again; the cursor is then in the first column."""
        # The terminal may be gone, which is no reason to stop.
        with tqdm.get_lock(), contextlib.suppress(OSError):
            for bar in self._bars:
                bar.clear(nolock=True)
            print("\x1b[K", end="", file=sys.stderr, flush=True)  # the terminal's own ^C

    def close(self) -> None:
        """Leaves the lines as they are; what follows begins on a new line."""
        signals.before_message.remove(self.erase)
        warnings.showwarning = self._show_warning
        for bar in self._bars:
            bar.close()

    def _warn(self, *args, **kwargs) -> None:
        self.erase()
        self._show_warning(*args, **kwargs)


class Progress:
    """A bar with rounds per second and ETA on a terminal, a plain line every few seconds otherwise.

    Args:
      label: start of each line; None prints nothing.
      total: number of rounds T.
      done: rounds completed before this process started.

    Attributes:
      patience: maximum seconds between two updates.
    """

    def __init__(self, label: str | None, total: int, done: int):
        self.label, self.total = label, total
        self._started = self._printed_at = time.monotonic()
        self.patience = PATIENCE[sys.stderr.isatty()]
        self._rounds, self._seconds, self._compiling = 0, 0.0, 0.0
        self.display: Display | None = None
        if label is not None and sys.stderr.isatty():
            self.display = Display()
            self.display.draw(display_lines(label, done, total, 0.0, None, "compiling", self.display.columns))

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
            if self.display is None and self.label is not None:
                print(f"{self.label}: compiled in {compiling:.1f} s", file=sys.stderr, flush=True)
        else:
            self._rounds, self._seconds = self._rounds + rounds, self._seconds + seconds
        if self.label is None:
            return
        now = time.monotonic()
        rate = self._rounds / max(self._seconds, 1e-9) if self._rounds else None
        if self.display is not None:
            elapsed, columns = now - self._started, self.display.columns
            self.display.draw(display_lines(self.label, done, self.total, elapsed, rate, note, columns))
            return
        if now - self._printed_at > 5 or done == self.total:
            self._printed_at = now
            pace = ""
            if rate is not None:
                pace = f"  {_pace(rate)}  {(self.total - done) / rate:.0f} s left"
            print(f"{self.label}: round {done}/{self.total}{pace}  {note}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the display."""
        if self.display is not None:
            self.display.close()
            self.display = None
