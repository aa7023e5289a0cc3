"""Result store: curves of run directories and of the project's stored results, found by the hash of their run."""

import dataclasses
import datetime
import gzip
import json
import lzma
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
from fedwin.runs.directory import read_config, verified_lines, verified_summary
from fedwin.runs.schedule import Schedule

from ..papers.measures import Curve
from ..papers.trajectories import Run
from . import archive, datasets

# What a record takes from config.json.
OF_CONFIG = ("config", "fingerprint", "versions", "device", "strategy")
# The project's stored results.
RESULTS = pathlib.Path(__file__).parent.parent / "results"
# Where the results of a checkout are stored; an installed package contains an archive of them, and is never written to.
IN_CHECKOUT = (RESULTS.parent.parent / "setup.py").is_file()
# Name of the trained model in metrics.jsonl, next to those of the read-outs.
MODEL = "model"
# Digits of accuracies and losses that are stored.
DIGITS = 5
# Fields of Config that depend on the machine are not stored, others may repeat the run.
NOT_STORED = ("out_dir", "data_dir")
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
    return wima_name(**{name: value for name, value in choice.params.items() if name != "warmup"})


@dataclasses.dataclass(frozen=True)
class Record:
    """Provenance and evaluations of one run directory.

    Attributes:
      header: key, config, fingerprint, versions, device, strategy, seed -> seconds; a stored one also its machine, the
        day on which it was stored, and the size and checksum of its data.
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
    """Records in the project's folder `experiments/results`, or in its archive; each is read once.

    Args:
      scale: smoke, trend or paper.
      folder: of the results of all scales.
    """

    def __init__(self, scale: str, folder: pathlib.Path = RESULTS):
        self.results, self.folder = folder, folder / scale
        self._records: dict[str, list[Record]] = {}

    def path(self, record: Record) -> pathlib.Path:
        """Returns the file of a record, which is named after its run and seeds."""
        return self.folder / f"{record.header['key']}-seed{'-'.join(map(str, record.seeds()))}.jsonl.gz"

    def text(self, name: str) -> str | None:
        """Returns the text of a stored file; None if there is none.

        Args:
          name: of the file.

        Raises:
          UserError: it is damaged.
        """
        path = self.folder / name
        if not path.is_file():
            return self._archived().get(f"{self.folder.name}/{name}")
        try:
            return gzip.decompress(path.read_bytes()).decode()
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise UserError(f"{path} is damaged ({type(error).__name__}); restore it from the repository.") from error

    def _archived(self) -> dict[str, str]:
        try:
            return archive.contents(self.results)
        except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
            path = self.results / archive.NAME
            raise UserError(f"{path} is damaged ({type(error).__name__}); install fedwin again.") from error

    def names(self, prefix: str = "") -> list[str]:
        """Returns the names of the scale's stored files that begin with a prefix."""
        start = f"{self.folder.name}/"
        archived = {name.removeprefix(start) for name in self._archived() if name.startswith(start + prefix)}
        return sorted(archived | {path.name for path in self.folder.glob(f"{prefix}*{archive.SUFFIX}")})

    def records(self, run: Run) -> list[Record]:
        """See ResultStore."""
        if run.key not in self._records:
            self._records[run.key] = [self._record(name) for name in self.names(f"{run.key}-seed")]
        return self._records[run.key]

    def _record(self, name: str) -> Record:
        return parsed(self.text(name) or "", self.folder / name)

    def covers(self, run: Run, seed: int, reads: Iterable[str], eval_every: int, final_evals: int) -> bool:
        """Whether a seed of a run is stored, with all read-outs and evaluated at least as often as required."""
        return any(
            seed in record.seeds() and _contains(record, reads, eval_every, final_evals) for record in self.records(run)
        )

    def add(self, record: Record) -> bool:
        """Stores a record; returns False if it is stored already.

        A stored record that lacks read-outs or evaluations of the new one is replaced, if the new one has all of its
        own.

        Raises:
          UserError: this is the installed package, or the run's data are not those of the scale.
        """
        path = self.path(record)
        check_writable(self.results)
        if path.is_file():
            stored = load_record(path)
            if _contains_all_of(stored, record) or not _contains_all_of(record, stored):
                return False
        subset = record.header.get("data", {}).get("subset", "")
        if subset and self.folder.name == "paper":
            raise UserError(
                f"{record.header['key']} is not stored: --scale=paper needs the complete data set, and "
                f"{record.header['config']['dataset']} has {subset}."
            )
        write_record(path, record)
        return True


def _contains(record: Record, reads: Iterable[str], eval_every: int, final_evals: int) -> bool:
    """Whether a record has the read-outs, and is evaluated at least as often as required."""
    config = record.header["config"]
    dense = eval_every % config["eval_every"] == 0
    dense = dense and (config["eval_every"] == 1 or config["final_evals"] >= final_evals)
    return dense and set(reads) <= set(config.get("observe", []))


def _contains_all_of(record: Record, other: Record) -> bool:
    """Whether a record has all read-outs and evaluations of another one."""
    config = other.header["config"]
    return _contains(record, config.get("observe", []), config["eval_every"], config["final_evals"])


def check_writable(folder: pathlib.Path = RESULTS) -> None:
    """Checks that results can be stored.

    Args:
      folder: of the results.

    Raises:
      UserError: the folder is that of the installed package.
    """
    if folder == RESULTS and not IN_CHECKOUT:
        raise UserError("--keep stores results in a checkout of the project's repository; this package is installed.")


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

    Raises:
      UserError: one of its files has been altered.
    """
    read_config(directory)
    said = json.loads((directory / "config.json").read_text())
    lines = verified_lines(directory)
    ended = verified_summary(directory)["seeds"] if (directory / "summary.json").is_file() else {}
    seconds = {str(seed): round(each["wall_seconds"], 1) for seed, each in ended.items()}
    diverged = {str(seed): each["diverged_at"] for seed, each in ended.items() if each["diverged_at"] is not None}
    header = {name: said[name] for name in OF_CONFIG if name in said}
    return Record({"key": key, **header, "seconds": seconds, "diverged": diverged}, lines)


def parsed(text: str, path: pathlib.Path) -> Record:
    """Returns the record in the text of a stored file: a line with its header, then its evaluations.

    Args:
      text: of the file.
      path: of the file, for messages.

    Raises:
      UserError: the file is damaged.
    """
    try:
        header, *lines = (json.loads(line) for line in text.splitlines())
        # Earlier versions stored a command, which could name a directory of another machine.
        return Record({name: value for name, value in header.items() if name != "command"}, lines)
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}); restore it from the repository.") from error


def load_record(path: pathlib.Path) -> Record:
    """Returns the record of a stored file.

    Raises:
      UserError: the file is damaged.
    """
    try:
        return parsed(gzip.decompress(path.read_bytes()).decode(), path)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}); restore it from the repository.") from error


def write_record(path: pathlib.Path, record: Record) -> None:
    """Writes a record to a file; equal records give equal bytes."""
    rows = [json.dumps(row, separators=(",", ":")) for row in (record.header, *record.lines)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        path.write_bytes(gzip.compress(("\n".join(rows) + "\n").encode(), mtime=0))


def machine() -> str:
    """Returns this machine in words."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"


def portable(config: dict[str, Any], parent_key: str) -> dict[str, Any]:
    """Returns the fields that differ from the defaults; a parent's directory is replaced by its run's key."""
    defaults = {field: default_of(definition) for field, definition in Config.__dataclass_fields__.items()}
    # A module has a name everywhere, a file a path on this machine.
    config = config | {"imports": [text for text in config.get("imports", ()) if not text.endswith(".py")]}
    stored = {name: value for name, value in config.items() if name not in NOT_STORED and value != defaults.get(name)}
    for name in ("fork_from", "init_from"):
        if stored.get(name):
            stored[name] = f"{parent_key}@{stored[name].rpartition('@')[2]}"
    return stored | {name: config[name] for name in ALWAYS}


def record_to_store(run: Run, directory: pathlib.Path) -> Record:
    """Returns the record of a finished run: configuration, versions, machine, seconds, data, rounded evaluations.

    Args:
      run: the trajectory.
      directory: of the run.
    """
    record = read_directory(directory, run.key)
    trained = record.header["config"]
    config = portable(trained, run.parent.run.key if run.parent else "")
    header = {
        **record.header,
        "label": f"{config['algorithm']} {' '.join(config.get('wrap', []))}".strip(),
        "config": config,
        "machine": machine(),
        "data": datasets.provenance(trained["dataset"], trained.get("data_dir", "")),
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

    A record may contain more evaluations than the run asks for, because tables and figures share runs: the curve has
    those of the run's own eval_every and final_evals alone.

    Args:
      store: where records are read.
      run: the trajectory.
      read: the read-out, an observer's text; empty: the trained model.
      metric: name of one of its metrics in [0, 1].
    """
    name, config = readout_name(read), run.config()
    by_seed: dict[int, Curve] = {}
    for record in store.records(run):
        for seed in record.seeds():
            curve = _curve(record, seed, name, metric, config)
            if curve is not None and (seed not in by_seed or _last_round(curve) > _last_round(by_seed[seed])):
                by_seed[seed] = curve
    parent = run.parent
    if parent is None or parent.part is not None:
        return by_seed
    before = curves(store, parent.run, metric=metric)
    return {seed: _joined(before.get(seed), curve, parent.round) for seed, curve in by_seed.items()}


def _last_round(curve: Curve) -> int:
    return int(curve.rounds[-1]) if len(curve.rounds) else -1


def _curve(record: Record, seed: int, name: str, metric: str, config: Config) -> Curve | None:
    """Returns the curve of a seed in a record, with the evaluations of a Config; None without any."""
    own = [line for line in record.lines if line["seed"] == seed and metric in line.get(name, ())]
    schedule = Schedule(config.num_rounds, config.clients_per_round, config.eval_every, config.final_evals, 0)
    lines = [line for line in own if schedule.evaluated(line["round"])]
    if not lines:
        return None
    losses = [float(line[MODEL].get("loss", 0.0)) for line in own if MODEL in line]
    diverged = str(seed) in record.header.get("diverged", {}) or not np.isfinite(losses).all()
    return Curve(
        np.array([line["round"] for line in lines]),
        np.array([float(line[name][metric]) for line in lines]),
        max(config.final_evals, 1),
        config.num_rounds,
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
