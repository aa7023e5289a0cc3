"""Finished pieces in files: one each, named after what was measured, written in one step."""

import dataclasses
import json
import pathlib
from typing import Any

from fedwin.files import write_json, writing
from fedwin.runs.fingerprint import hash_of

from .pieces import Piece

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
