"""Finished and unfinished curves by what decides them: in run directories, or kept in the repository."""

import dataclasses
import gzip
import json
import pathlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from fedwin.errors import UserError
from fedwin.files import writing
from fedwin.runs.metrics_log import read_lines

from ..papers.measures import Curve
from ..papers.observing import MODEL, name_of
from ..papers.trajectories import Run

# What a record takes from config.json.
OF_CONFIG = ("config", "fingerprint", "versions", "device", "strategy")

# Curves that are kept with the project.
KEPT = pathlib.Path(__file__).parent.parent / "results"


def home(out_dir: str | pathlib.Path, scale: str) -> pathlib.Path:
    """Returns where the runs of a scale are."""
    return pathlib.Path(out_dir) / scale


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of a run: where it comes from and its evaluations.

    Attributes:
      header: key, config, fingerprint, versions, device, seeds -> seconds, command.
      lines: evaluations, as in metrics.jsonl.
    """

    header: dict[str, Any]
    lines: list[dict[str, Any]]

    def seeds(self) -> list[int]:
        """Returns the seeds that have any evaluation."""
        return sorted({line["seed"] for line in self.lines})


class Shelf(Protocol):
    """Where records are found."""

    def records(self, run: Run) -> list[Record]:
        """Returns what there is of a run."""


class Directories:
    """The records of run directories.

    Args:
      out_dir: what all runs are below.
      scale: smoke, trend or paper.
    """

    def __init__(self, out_dir: str | pathlib.Path, scale: str):
        self.where = home(out_dir, scale)

    def records(self, run: Run) -> list[Record]:
        """See Shelf."""
        return list(self._records(run.key))

    def _records(self, key: str) -> Iterator[Record]:
        for config in sorted((self.where / key).glob("*/config.json")):
            yield read_directory(config.parent, key)


def read_directory(directory: pathlib.Path, key: str) -> Record:
    """Returns the record of one run directory."""
    known = json.loads((directory / "config.json").read_text())
    lines = read_lines(directory / "metrics.jsonl")
    summary = directory / "summary.json"
    seeds = json.loads(summary.read_text())["seeds"] if summary.is_file() else {}
    seconds = {seed: round(found["wall_seconds"], 1) for seed, found in seeds.items()}
    diverged = {seed: found["diverged_at"] for seed, found in seeds.items() if found["diverged_at"] is not None}
    header = {
        name: known[name] for name in ("config", "fingerprint", "versions", "device", "strategy") if name in known
    }
    return Record({"key": key, **header, "seconds": seconds, "diverged": diverged}, lines)


class Kept:
    """The records that are kept with the project.

    Args:
      scale: smoke, trend or paper.
      folder: where they are.
    """

    def __init__(self, scale: str, folder: pathlib.Path = KEPT):
        self.where = folder / scale
        self._read: dict[str, list[Record]] = {}

    def path(self, record: Record) -> pathlib.Path:
        """Returns the file of a record: a run, and its seeds."""
        return self.where / f"{record.header['key']}-seed{'-'.join(map(str, record.seeds()))}.jsonl.gz"

    def records(self, run: Run) -> list[Record]:
        """See Shelf."""
        if run.key not in self._read:
            found = sorted(self.where.glob(f"{run.key}-seed*.jsonl.gz"))
            self._read[run.key] = [read_kept(path) for path in found]
        return self._read[run.key]

    def shows(self, run: Run, seed: int, reads: Iterable[str], eval_every: int, final_evals: int) -> bool:
        """Whether a seed of a run is kept, with all read-outs and as densely evaluated as asked for."""
        for record in self.records(run):
            config = record.header["config"]
            dense = eval_every % config["eval_every"] == 0 and config["final_evals"] >= final_evals
            if seed in record.seeds() and dense and set(reads) <= set(config.get("observe", [])):
                return True
        return False


class Several:
    """Several shelves as one.

    Args:
      shelves: where records are found.
    """

    def __init__(self, *shelves: Shelf):
        self.shelves = shelves

    def records(self, run: Run) -> list[Record]:
        """See Shelf."""
        return [record for shelf in self.shelves for record in shelf.records(run)]


def read_kept(path: pathlib.Path) -> Record:
    """Returns the record of a kept file: a line with its header, then its evaluations.

    Raises:
      UserError: it is damaged.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            header, *lines = (json.loads(text) for text in file)
        return Record(header, lines)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}); restore it from the repository.") from error


def write_kept(path: pathlib.Path, record: Record) -> None:
    """Writes a record to a file; the same record makes the same bytes."""
    rows = [json.dumps(row, separators=(",", ":")) for row in (record.header, *record.lines)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode(), mtime=0))


def curves(shelf: Shelf, run: Run, read: str = "", metric: str = "accuracy") -> dict[int, Curve]:
    """Returns seed -> curve of a read-out; a forked run's begins with that of the model that it goes on from.

    Args:
      shelf: where records are.
      run: whose.
      read: the read-out, an observer's text; empty: the trained model.
      metric: which of its numbers, a share in [0, 1].
    """
    name = name_of(read)
    found: dict[int, Curve] = {}
    for record in shelf.records(run):
        for seed in record.seeds():
            curve = _curve(record, seed, name, metric)
            if curve is not None and (seed not in found or _end(curve) > _end(found[seed])):
                found[seed] = curve
    source = run.parent
    if source is None or source.part is not None:
        return found
    before = curves(shelf, source.run, metric=metric)
    return {seed: _joined(before.get(seed), curve, source.round) for seed, curve in found.items()}


def _end(curve: Curve) -> int:
    return int(curve.rounds[-1]) if len(curve.rounds) else -1


def _curve(record: Record, seed: int, name: str, metric: str) -> Curve | None:
    config = record.header["config"]
    lines = [line for line in record.lines if line["seed"] == seed and metric in line.get(name, ())]
    if not lines:
        return None
    losses = [float(line[MODEL].get("loss", 0.0)) for line in lines if MODEL in line]
    diverged = str(seed) in record.header.get("diverged", {}) or not np.isfinite(losses).all()
    return Curve(
        np.array([line["round"] for line in lines]),
        np.array([float(line[name][metric]) for line in lines]),
        max(config["final_evals"], 1),
        config["num_rounds"],
        diverged,
    )


def _joined(before: Curve | None, after: Curve, round: int) -> Curve:
    if before is None:
        return after
    early, late = before.rounds < round, after.rounds >= round
    return after._replace(
        rounds=np.concatenate([before.rounds[early], after.rounds[late]]),
        accuracy=np.concatenate([before.accuracy[early], after.accuracy[late]]),
    )
