"""Measurements of the suite (pieces), their records in files, and the time budget.

The cohorts are those of the papers: 10 of 100 clients with 500 images each, that is, eight batches of 64 (LeNet-5,
ResNet-20), FedJAX's own EMNIST setting of 10 clients, and 10 clients of Shakespeare with four batches of 100. The
performance targets refer to the same cohorts.
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
# Cohort of --quick.
TINY = "2x1x4"
# In the order of measurement: the precision of the targets comes first.
PRECISIONS = ("tf32", "float32", "bfloat16")
# Vmapped seeds: as in the papers, and with --quick.
SEEDS, FEW_SEEDS = 5, 2
# (contestant, strategy or layout, vmapped seeds). FedJAX only supports the precisions of its matrix products.
_COMMON = (
    ("fedwin", "vmapped", 1),
    ("fedjax", "", 1),
    ("torch", "", 1),
    ("fedwin", "chunked:k=1", 1),
    ("torch", "channels-last", 1),
)
_FEDWIN_ONLY = (("fedwin", "chunked:k=5", 1), ("fedwin", "vmapped", SEEDS))
CONTESTANTS = {
    "tf32": (*_COMMON, *_FEDWIN_ONLY),
    "float32": _COMMON,
    "bfloat16": tuple(contestant for contestant in _COMMON if contestant[0] != "fedjax"),
}


@dataclasses.dataclass(frozen=True)
class Piece:
    """One measurement.

    Attributes:
      case: workload.
      precision: float32, tf32 or bfloat16.
      who: contestant: fedwin, fedjax or torch.
      how: fedwin's strategy, or 'channels-last'.
      seeds: vmapped seeds.
    """

    case: Case
    precision: str
    who: str
    how: str = ""
    seeds: int = 1

    @property
    def label(self) -> str:
        """Contestant in the tables."""
        return " ".join([self.who, *([self.how] if self.how else [])]) + (
            f", {self.seeds} seeds" if self.seeds > 1 else ""
        )

    @property
    def title(self) -> str:
        """Name in progress messages."""
        return f"{self.case.name} {self.precision} {self.label}"

    @property
    def request(self) -> dict[str, Any]:
        """Request to its worker."""
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
    """Returns groups of pieces; those of a group are measured alternately.

    Args:
      names: of the cases.
      peers: contestants other than fedwin.
      tiny: whether to use tiny cohorts.
    """
    all_groups = []
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
            all_groups.append(group)
    return all_groups


Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Setup:
    """Device and versions that a measurement depends on.

    Attributes:
      device: kind and number of the devices.
      versions: contestant -> versions, or the reason why it can't be measured.
    """

    device: str
    versions: dict[str, str]


class Records:
    """Records of a folder.

    Args:
      folder: created when the first record is written.
      setup: of this call; records of other setups are ignored.
      again: whether to retry failed pieces.
    """

    def __init__(self, folder: pathlib.Path, setup: Setup, again: bool = False):
        self.folder, self.setup, self.again = folder, setup, again
        self._tried: set[str] = set()

    def identity(self, piece: Piece) -> Record:
        """Returns the fields that identify a measurement."""
        fields = dataclasses.asdict(piece)
        del fields["case"]["targets"]
        return fields | {"device": self.setup.device, "versions": self.setup.versions[piece.who]}

    def path(self, piece: Piece) -> pathlib.Path:
        """Returns the file of a piece."""
        key = hash_of(self.identity(piece))
        name = "-".join((piece.case.name, piece.precision, *piece.label.replace(",", "").replace(":", " ").split()))
        return self.folder / f"{name}-{key}.json"

    def read(self, piece: Piece) -> Record | None:
        """Returns the record of a piece; None if there is no valid one."""
        try:
            record = json.loads(self.path(piece).read_text())
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) and ("failed" in record or "ms_per_round" in record) else None

    def wanted(self, piece: Piece) -> bool:
        """Whether to measure a piece: it has no record, or failed before this call and is retried."""
        record = self.read(piece)
        return record is None or ("failed" in record and self.again and piece.title not in self._tried)

    def write(self, piece: Piece, figures: Record) -> None:
        """Writes the figures of a piece, or {'failed': reason}.

        Args:
          piece: what was measured.
          figures: of the piece.
        """
        self._tried.add(piece.title)
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.path(piece), {"piece": self.identity(piece)} | figures)


# Expected seconds of a piece (start, compilation, turns) before any has been measured.
FIRST_GUESS = 20.0


class Countdown:
    """Countdown.

    Args:
      seconds: in total.
      now: returns the time in seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic):
        self.now, self.end = now, now() + seconds

    def left(self) -> float:
        """Returns the remaining seconds, negative after the end."""
        return self.end - self.now()


class Done(NamedTuple):
    """Outcome of a call.

    Attributes:
      measured: pieces with new figures.
      left: pieces for which there was no time.
    """

    measured: list[Piece]
    left: list[Piece]


def measure_groups(
    groups: list[list[Piece]],
    records: Records,
    measure: Callable[[list[Piece]], dict[Piece, Record]],
    clock: Countdown,
    reserved: float = 0.0,
) -> Done:
    """Measures missing pieces within the time budget, and writes their records after each group.

    Args:
      groups: of pieces, the most important first.
      records: finished pieces, which are not measured again.
      measure: pieces -> their figures or {'failed': reason}; omitted pieces ran out of time.
      clock: time budget.
      reserved: seconds to leave for what follows.
    """
    done = Done([], [])
    per_piece = FIRST_GUESS
    spent, attempted = 0.0, 0
    for group in groups:
        missing = [piece for piece in group if records.wanted(piece)]
        fit = min(len(missing), max(0, int((clock.left() - reserved) / per_piece)))
        done.left.extend(missing[fit:])
        if not fit:
            continue
        started = clock.now()
        measured = measure(missing[:fit])
        for piece, figures in measured.items():
            records.write(piece, figures)
        done.measured.extend(piece for piece, figures in measured.items() if "failed" not in figures)
        done.left.extend(piece for piece in missing[:fit] if piece not in measured)
        spent, attempted = spent + clock.now() - started, attempted + fit
        per_piece = max(spent / attempted, 1e-3)
    return done
