"""The pieces of the suite: which case, in which precision, by whom.

The cohorts are those that the papers train: 10 of 100 clients with 500 images each, so eight batches of 64 (LeNet-5,
ResNet-20), FedJAX's own EMNIST setting of 10 clients, and 10 clients of Shakespeare with batches of 100, of which four
a round are enough: the step is the same. The aims are stated for the same cohorts.
"""

import dataclasses
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fedwin.files import write_json, writing
from fedwin.runs.fingerprint import hash_of

from ..peers.cases import CASES, Case, scaled

COHORTS = {"lenet5": "10x8x64", "resnet20": "10x8x64", "emnist_cnn": "10x20x10", "leaf_lstm": "10x4x100"}
# Of a trial, which is to show that everything works.
TINY = "2x1x4"
# In the order in which they are measured: what the aims are about comes first.
PRECISIONS = ("tf32", "float32", "bfloat16")
# As many seeds as the papers average over.
SEEDS, FEW_SEEDS = 5, 2
# Who, and how: a strategy and seeds at once, or a layout. FedJAX has no other precision than those of its products.
_BOTH = (
    ("fedwin", "vmapped", 1),
    ("fedjax", "", 1),
    ("torch", "", 1),
    ("fedwin", "chunked:k=1", 1),
    ("torch", "channels-last", 1),
)
_HALF = (("fedwin", "chunked:k=5", 1), ("fedwin", "vmapped", SEEDS))
CONTESTANTS = {
    "tf32": (*_BOTH, *_HALF),
    "float32": _BOTH,
    "bfloat16": tuple(one for one in _BOTH if one[0] != "fedjax"),
}


@dataclasses.dataclass(frozen=True)
class Piece:
    """One measurement.

    Attributes:
      case: what is trained.
      precision: float32, tf32 or bfloat16.
      who: fedwin, fedjax or torch.
      how: fedwin's strategy, or 'channels-last'.
      seeds: that are trained in one program.
    """

    case: Case
    precision: str
    who: str
    how: str = ""
    seeds: int = 1

    @property
    def label(self) -> str:
        """What tables call who measured it."""
        return " ".join([self.who, *([self.how] if self.how else [])]) + (
            f", {self.seeds} seeds" if self.seeds > 1 else ""
        )

    @property
    def title(self) -> str:
        """What lines call it."""
        return f"{self.case.name} {self.precision} {self.label}"

    @property
    def request(self) -> dict[str, Any]:
        """What its worker is asked to prepare."""
        fields = dataclasses.asdict(self.case)
        if self.who == "fedjax":
            return {"case": fields}
        if self.who == "torch":
            return {"case": fields, "precision": self.precision, "channels_last": bool(self.how)}
        if self.precision == "bfloat16":
            fields["model"] += ":dtype=bfloat16"
        kind = "seeds" if self.seeds > 1 else "rounds"
        return {"kind": kind, "case": fields, "strategy": self.how, "seeds": self.seeds}


def groups(names: list[str], peers: list[str], tiny: bool) -> list[list[Piece]]:
    """Returns the pieces that are measured in turn with each other, group by group.

    Args:
      names: of the cases.
      peers: that fedwin is compared with.
      tiny: whether cohorts are tiny.
    """
    found = []
    for precision in PRECISIONS:
        for name in names:
            case = scaled(CASES[name], TINY if tiny else COHORTS[name])
            group = []
            for who, how, seeds in CONTESTANTS[precision]:
                if who != "fedwin" and who not in peers:
                    continue
                if how == "channels-last" and len(case.shape) != 3:
                    continue
                group.append(Piece(case, precision, who, how, FEW_SEEDS if tiny and seeds > 1 else seeds))
            found.append(group)
    return found


Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a measurement depends on besides the piece.

    Attributes:
      device: kind and number of the devices.
      versions: who -> versions, or why it can't be measured.
    """

    device: str
    versions: dict[str, str]


class Records:
    """The pieces of a folder.

    Args:
      folder: where they are; made when the first one is written.
      setup: of what is measured now. What was measured otherwise stays where it is and counts for nothing.
      again: whether pieces that failed are tried again.
    """

    def __init__(self, folder: pathlib.Path, setup: Setup, again: bool = False):
        self.folder, self.setup, self.again = folder, setup, again
        self._tried: set[str] = set()

    def identity(self, piece: Piece) -> Record:
        """Returns what decides what a piece measures."""
        told = dataclasses.asdict(piece)
        del told["case"]["targets"]
        return told | {"device": self.setup.device, "versions": self.setup.versions[piece.who]}

    def path(self, piece: Piece) -> pathlib.Path:
        """Returns the file of a piece."""
        key = hash_of(self.identity(piece))
        words = "-".join((piece.case.name, piece.precision, *piece.label.replace(",", "").replace(":", " ").split()))
        return self.folder / f"{words}-{key}.json"

    def read(self, piece: Piece) -> Record | None:
        """Returns the record of a piece; None where there is none that can be read."""
        try:
            found = json.loads(self.path(piece).read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and ("failed" in found or "ms_per_round" in found) else None

    def wanted(self, piece: Piece) -> bool:
        """Whether a piece is to be measured: it has not been, or has failed before this call and is tried again."""
        found = self.read(piece)
        return found is None or ("failed" in found and self.again and piece.title not in self._tried)

    def write(self, piece: Piece, figures: Record) -> None:
        """Writes what was measured, or {'failed': reason}."""
        self._tried.add(piece.title)
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.path(piece), {"piece": self.identity(piece)} | figures)


# Seconds that a piece takes, as long as none has been measured: start, compilation, turns.
FIRST_GUESS = 20.0


class Clock:
    """The time that is left.

    Args:
      seconds: for everything.
      now: returns the time in seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic):
        self.now, self.end = now, now() + seconds

    def left(self) -> float:
        """Returns the seconds that are left; below 0: there are none."""
        return self.end - self.now()


class Done(NamedTuple):
    """What became of the pieces in this call.

    Attributes:
      measured: pieces that have figures now.
      left: those for which there was no time.
    """

    measured: list[Piece]
    left: list[Piece]


def go_through(
    groups: list[list[Piece]],
    records: Records,
    measure: Callable[[list[Piece]], dict[Piece, Record]],
    clock: Clock,
    reserved: float = 0.0,
) -> Done:
    """Measures what is missing as far as the time goes, and writes every piece as soon as its group is measured.

    Args:
      groups: pieces that are measured in turn with each other, the most important first.
      records: where they are written; what is there is not measured again.
      measure: pieces -> their figures or {'failed': reason}; what it leaves out had no time.
      clock: the time that is left.
      reserved: seconds that are kept for what comes after.
    """
    done = Done([], [])
    each = FIRST_GUESS
    spent, tried = 0.0, 0
    for group in groups:
        missing = [piece for piece in group if records.wanted(piece)]
        fit = min(len(missing), max(0, int((clock.left() - reserved) / each)))
        done.left.extend(missing[fit:])
        if not fit:
            continue
        begun = clock.now()
        found = measure(missing[:fit])
        for piece, figures in found.items():
            records.write(piece, figures)
        done.measured.extend(piece for piece, figures in found.items() if "failed" not in figures)
        done.left.extend(piece for piece in missing[:fit] if piece not in found)
        spent, tried = spent + clock.now() - begun, tried + fit
        each = max(spent / tried, 1e-3)
    return done
