"""Where curves come from: the directories of runs, and results that were kept as compressed JSON lines."""

import dataclasses
import gzip
import json
import os
import pathlib
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fedwin import plugins
from fedwin.analysis import traffic
from fedwin.errors import UserError
from fedwin.registry import nearest
from fedwin.runs import directory as directories
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import read_lines
from fedwin.runs.prepare import PreparedRun, prepare

STORED = ".jsonl.gz"

Line = dict[str, Any]


class Series(NamedTuple):
    """One curve of a picture.

    Attributes:
      label: its name in the legend.
      lines: evaluations, as in metrics.jsonl, of all seeds.
      readout: which model was evaluated.
      since: the first round that is shown; a window that opens late says nothing before.
      header: what is known of the run: 'config', 'directory', 'bytes'.
    """

    label: str
    lines: list[Line]
    readout: str = "model"
    since: int = 0
    header: dict[str, Any] = {}


def read(path: str | pathlib.Path) -> tuple[dict[str, Any], list[Line]]:
    """Reads the evaluations of a run.

    Args:
      path: a run's directory, or a kept result `*.jsonl.gz`: a line with its header, then lines as in metrics.jsonl.

    Returns:
      (header, lines). A header has 'label' and 'config'; that of a directory also 'directory'; a kept one may have
      'bytes', [down, up] of a client and round.

    Raises:
      UserError: there is no such run, it has no evaluation yet, or the file is damaged.
    """
    path = pathlib.Path(path)
    if os.path.isdir(path):
        config = config_of(path)
        header, lines = (
            {"label": path.resolve().name, "config": config, "directory": str(path)},
            read_lines(path / "metrics.jsonl"),
        )
    elif path.name.endswith(STORED):
        header, lines = _read_stored(path)
    else:
        raise UserError(f"{path}: neither the directory of a run nor a kept result (*{STORED}); check the path.")
    if not lines:
        raise UserError(f"{path} has no evaluation yet; let the run get further.")
    return header, lines


def _read_stored(path: pathlib.Path) -> tuple[dict[str, Any], list[Line]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            header, *lines = (json.loads(text) for text in file if text.strip())
        usual = {"label": path.name.removesuffix(STORED), "config": {}}
        if not isinstance(header, dict) or "round" in header:
            raise ValueError("the first line is no header")
        if not all(isinstance(line["seed"], int) and isinstance(line["round"], int) for line in lines):
            raise ValueError("a line is no evaluation")
        return usual | header, lines
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror or error}); check the path.") from error
    except (ValueError, KeyError, TypeError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a kept result ({error}); restore it.") from error


def readouts(lines: Iterable[Line]) -> list[str]:
    """Returns the models that were evaluated, in the order of the run."""
    found: dict[str, None] = {}
    for line in lines:
        found |= dict.fromkeys(name for name, value in line.items() if isinstance(value, dict))
    return list(found)


def series(paths: Sequence[str | pathlib.Path], wanted: Sequence[str] = (), labels: Sequence[str] = ()) -> list[Series]:
    """Returns the curves of runs and read-outs.

    Args:
      paths: what `read` takes.
      wanted: read-outs; a run without one of them leaves it out. None: all of every run.
      labels: a name per path, in place of its own.

    Raises:
      UserError: no run has a read-out that is wanted, or there is not one label per path.
    """
    if labels and len(labels) != len(paths):
        raise UserError(f"{len(labels)} label(s) for {len(paths)} run(s); give one each.")
    found = [read(path) for path in paths]
    known = dict.fromkeys(name for _, lines in found for name in readouts(lines))
    for name in wanted:
        if name not in known:
            raise UserError(f"read-out '{name}': no run has it.{nearest(name, known)} They have {', '.join(known)}.")
    names = list(labels) or _unique([header["label"] for header, _ in found], paths)
    out = []
    for name, (header, lines) in zip(names, found):
        own = [readout for readout in readouts(lines) if readout in (wanted or known)]
        # The read-out is said only where it tells curves apart.
        said = len(own) > 1 or len(wanted) > 1
        out += [Series(f"{name}: {own_name}" if said else name, lines, own_name, 0, header) for own_name in own]
    return out


def describe(series: Sequence[Series]) -> str:
    """Returns what the runs of several curves have in common, for a title."""
    parts = []
    for name in ("dataset", "partition", "model"):
        values = {str(one.header.get("config", {}).get(name, "")) for one in series}
        parts += [value for value in values if len(values) == 1 and value]
    seeds = {line["seed"] for one in series for line in one.lines}
    return ", ".join([*parts, f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"])


def _unique(labels: list[str], paths: Sequence[str | pathlib.Path]) -> list[str]:
    """Two runs of one name are called by their paths."""
    return labels if len(set(labels)) == len(labels) else [str(path) for path in paths]


def config_of(directory: str | pathlib.Path) -> dict[str, Any]:
    """Returns the flags of a run; raises UserError where there is none."""
    if not os.path.isfile(os.path.join(directory, "config.json")):
        raise UserError(f"{directory}: this is not the directory of a run; `fedwin list runs` shows them.")
    return directories.read_config(pathlib.Path(directory)).config


def prepared_run(directory: str | pathlib.Path, data_dir: str | None = None) -> PreparedRun:
    """Returns what a run's configuration means: data set, partition, network.

    Args:
      directory: the run's.
      data_dir: where the data set's files are now; None: where they were.

    Raises:
      UserError: there is no run, or its data are not there.
    """
    said = config_of(directory)
    fields = {field.name for field in dataclasses.fields(Config)}
    config = Config(**{name: value for name, value in said.items() if name in fields})
    if data_dir is not None:
        config = dataclasses.replace(config, data_dir=str(data_dir))
    plugins.load(config.imports)
    return prepare(config)


def is_known(header: dict[str, Any]) -> bool:
    """Whether `bytes_per_round` can be told of a run."""
    return "bytes" in header or "directory" in header


def bytes_per_round(header: dict[str, Any], data_dir: str | None = None) -> int:
    """Returns the bytes that all clients of a round receive and send.

    Args:
      header: as `sources.read` returns it.
      data_dir: where the data set's files are now; None: where they were.

    Raises:
      UserError: a kept result does not say it, or the run's data are not there.
    """
    if "bytes" in header:
        return traffic(tuple(header["bytes"]), 1, header["config"]["clients_per_round"])
    if "directory" not in header:
        raise UserError(f"{header['label']} was kept without 'bytes', what a client receives and sends per round.")
    prepared = prepared_run(header["directory"], data_dir)
    return traffic(prepared.rehearse(), 1, prepared.setting.clients_per_round)
