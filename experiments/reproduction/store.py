"""Result store: curves of run directories and of the project's stored results, found by the hash of their run."""

import dataclasses
import datetime
import gzip
import json
import os
import pathlib
import platform
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from fedwin.errors import UserError
from fedwin.files import writing
from fedwin.observers import OBSERVERS, wima_name
from fedwin.runs.config import Config, default_of
from fedwin.runs.metrics_log import read_lines

from ..cli import command_line
from ..papers.measures import Curve
from ..papers.trajectories import Run

# What a record takes from config.json.
OF_CONFIG = ("config", "fingerprint", "versions", "device", "strategy")
# The project's stored results.
RESULTS = pathlib.Path(__file__).parent.parent / "results"
# Name of the trained model in metrics.jsonl, beside those of the read-outs.
MODEL = "model"
# Digits of accuracies and losses that are stored.
DIGITS = 5
# Fields of Config that depend on the machine are not stored, others may repeat the run.
NOT_STORED = ("out_dir", "data_dir", "imports")
# Fields of Config that are stored even at their defaults.
ALWAYS = ("algorithm", "dataset", "num_rounds", "eval_every", "final_evals", "seeds")


def scale_folder(out_dir: str | pathlib.Path, scale: str) -> pathlib.Path:
    """Returns the folder of a scale's runs and tables."""
    return pathlib.Path(out_dir) / scale


def readout_name(read: str) -> str:
    """Returns the name of a read-out in metrics.jsonl.

    >>> readout_name("wima:window=100,part=classifier")
    'wima100_classifier'

    Args:
      read: an observer's text, as in --observe; empty for the trained model.
    """
    if not read:
        return MODEL
    choice = OBSERVERS.check(read)
    if choice.name != "wima":
        return choice.name
    return wima_name(choice.params["window"], choice.params.get("part", "all"))


@dataclasses.dataclass(frozen=True)
class Record:
    """Provenance and evaluations of one run directory.

    Attributes:
      header: key, config, fingerprint, versions, device, seed -> seconds, command.
      lines: evaluations, as in metrics.jsonl.
    """

    header: dict[str, Any]
    lines: list[dict[str, Any]]

    def seeds(self) -> list[int]:
        """Returns the seeds with at least one evaluation."""
        return sorted({line["seed"] for line in self.lines})


class ResultStore(Protocol):
    """Where records are read."""

    def records(self, run: Run) -> list[Record]:
        """Returns all records of a run."""


class LocalResults:
    """Records of the run directories of this machine.

    Args:
      out_dir: the folder above all runs.
      scale: smoke, trend or paper.
    """

    def __init__(self, out_dir: str | pathlib.Path, scale: str):
        self.folder = scale_folder(out_dir, scale)

    def records(self, run: Run) -> list[Record]:
        """See ResultStore."""
        return list(self._records(run.key))

    def _records(self, key: str) -> Iterator[Record]:
        for config in sorted((self.folder / key).glob("*/config.json")):
            yield read_directory(config.parent, key)


class StoredResults:
    """Records in the project's folder `experiments/results`; each is read once.

    Args:
      scale: smoke, trend or paper.
      folder: of the results of all scales.
    """

    def __init__(self, scale: str, folder: pathlib.Path = RESULTS):
        self.folder = folder / scale
        self._records: dict[str, list[Record]] = {}

    def path(self, record: Record) -> pathlib.Path:
        """Returns the file of a record, which is named after its run and seeds."""
        return self.folder / f"{record.header['key']}-seed{'-'.join(map(str, record.seeds()))}.jsonl.gz"

    def records(self, run: Run) -> list[Record]:
        """See ResultStore."""
        if run.key not in self._records:
            paths = sorted(self.folder.glob(f"{run.key}-seed*.jsonl.gz"))
            self._records[run.key] = [read_record(path) for path in paths]
        return self._records[run.key]

    def covers(self, run: Run, seed: int, reads: Iterable[str], eval_every: int, final_evals: int) -> bool:
        """Whether a seed of a run is stored, with all read-outs and evaluated at least as often as required."""
        for record in self.records(run):
            config = record.header["config"]
            dense = eval_every % config["eval_every"] == 0 and config["final_evals"] >= final_evals
            if seed in record.seeds() and dense and set(reads) <= set(config.get("observe", [])):
                return True
        return False

    def add(self, record: Record) -> bool:
        """Stores a record; returns False if it is stored already."""
        path = self.path(record)
        if path.is_file():
            return False
        write_record(path, record)
        return True


class CombinedResults:
    """The records of several stores.

    Args:
      *stores: in the order of their records.
    """

    def __init__(self, *stores: ResultStore):
        self.stores = stores

    def records(self, run: Run) -> list[Record]:
        """See ResultStore."""
        return [record for store in self.stores for record in store.records(run)]


def read_directory(directory: pathlib.Path, key: str) -> Record:
    """Returns the record of a run directory.

    Args:
      directory: of the run.
      key: of the run, see `Run.key`.
    """
    said = json.loads((directory / "config.json").read_text())
    lines = read_lines(directory / "metrics.jsonl")
    summary = directory / "summary.json"
    seeds = json.loads(summary.read_text())["seeds"] if summary.is_file() else {}
    seconds = {seed: round(ended["wall_seconds"], 1) for seed, ended in seeds.items()}
    diverged = {seed: ended["diverged_at"] for seed, ended in seeds.items() if ended["diverged_at"] is not None}
    header = {name: said[name] for name in OF_CONFIG if name in said}
    return Record({"key": key, **header, "seconds": seconds, "diverged": diverged}, lines)


def read_record(path: pathlib.Path) -> Record:
    """Returns the record of a stored file: a line with its header, then its evaluations.

    Raises:
      UserError: the file is damaged.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            header, *lines = (json.loads(text) for text in file)
        return Record(header, lines)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}); restore it from the repository.") from error


def write_record(path: pathlib.Path, record: Record) -> None:
    """Writes a record to a file; equal records give equal bytes."""
    rows = [json.dumps(row, separators=(",", ":")) for row in (record.header, *record.lines)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode(), mtime=0))


def _machine() -> str:
    """Returns this machine in words."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"


def _portable(config: dict[str, Any], parent_key: str) -> dict[str, Any]:
    """Returns the fields that differ from the defaults; a parent's directory is replaced by its run's key."""
    defaults = {field: default_of(definition) for field, definition in Config.__dataclass_fields__.items()}
    stored = {name: value for name, value in config.items() if name not in NOT_STORED and value != defaults.get(name)}
    for name in ("fork_from", "init_from"):
        if stored.get(name):
            stored[name] = f"{parent_key}@{stored[name].rpartition('@')[2]}"
    return stored | {name: config[name] for name in ALWAYS}


def record_to_store(run: Run, directory: pathlib.Path, seeds: Iterable[int], fields: dict[str, Any]) -> Record:
    """Returns what is stored of a finished run: configuration, versions, machine, seconds, and rounded evaluations.

    Args:
      run: the trajectory.
      directory: of the run.
      seeds: that it trained.
      fields: fields of Config that say what is evaluated.
    """
    record = read_directory(directory, run.key)
    config = _portable(record.header["config"], run.parent.run.key if run.parent else "")
    start = {name: config[name] for name in ("fork_from", "init_from") if name in config}
    same_run = run.config(**fields, seeds=list(seeds), **start)
    header = {
        **record.header,
        "label": f"{config['algorithm']} {' '.join(config.get('wrap', []))}".strip(),
        "config": config,
        "command": command_line.train_command(same_run),
        "machine": _machine(),
        "kept": datetime.date.today().isoformat(),
    }
    return Record(header, [_rounded(line) for line in record.lines])


def _rounded(line: dict[str, Any]) -> dict[str, Any]:
    """Returns an evaluation with rounded numbers, without the training loss and the seconds."""

    def number(value):
        return round(value, DIGITS) if isinstance(value, float) else value

    stored = {name: value for name, value in line.items() if name not in ("train_loss", "seconds")}
    return {
        name: {key: number(each) for key, each in value.items()} if isinstance(value, dict) else number(value)
        for name, value in stored.items()
    }


def curves(store: ResultStore, run: Run, read: str = "", metric: str = "accuracy") -> dict[int, Curve]:
    """Returns seed -> curve of a read-out; that of a fork begins with the curve of its parent's model.

    Args:
      store: where records are read.
      run: the trajectory.
      read: the read-out, an observer's text; empty: the trained model.
      metric: name of one of its metrics in [0, 1].
    """
    name = readout_name(read)
    by_seed: dict[int, Curve] = {}
    for record in store.records(run):
        for seed in record.seeds():
            curve = _curve(record, seed, name, metric)
            if curve is not None and (seed not in by_seed or _last_round(curve) > _last_round(by_seed[seed])):
                by_seed[seed] = curve
    parent = run.parent
    if parent is None or parent.part is not None:
        return by_seed
    before = curves(store, parent.run, metric=metric)
    return {seed: _joined(before.get(seed), curve, parent.round) for seed, curve in by_seed.items()}


def _last_round(curve: Curve) -> int:
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
    """Returns a parent's curve before the fork's round, and the fork's own from there on."""
    if before is None:
        return after
    early, late = before.rounds < round, after.rounds >= round
    return after._replace(
        rounds=np.concatenate([before.rounds[early], after.rounds[late]]),
        accuracy=np.concatenate([before.accuracy[early], after.accuracy[late]]),
    )
