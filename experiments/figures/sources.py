"""Reads learning curves and configurations, from the directories of runs or packed runs."""

import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fedwin.callbacks.scores import main_metric
from fedwin.errors import UserError
from fedwin.observers import OBSERVERS, wima_name
from fedwin.registry.ranges import one_of
from fedwin.runs import directory as directories

from .. import records
from ..records import Line


class Series(NamedTuple):
    """One curve of a figure.

    Attributes:
      lines: evaluations of all seeds, as in metrics.jsonl.
      since: the first round that is shown; before its start a window average equals the model.
      header: metadata of the run: 'config', 'directory'.
    """

    label: str
    lines: list[Line]
    readout: str = "model"
    since: int = 0
    header: dict[str, Any] = {}


def read(path: str | pathlib.Path) -> tuple[dict[str, Any], list[Line]]:
    """Reads the evaluations of a run.

    Args:
      path: a run's directory, or a packed run.

    Returns:
      (header, lines). A header has 'label' and 'config'; that of a directory also 'directory'.

    Raises:
      UserError: there is no such run, it has no evaluation yet, or its files are damaged or have been altered.
    """
    config = config_of(path) if os.path.isdir(path) else None
    record = records.read(path)
    if not record.lines:
        raise UserError(f"{path} has no evaluation yet; continue the run.")
    if config is None:
        return {"label": record.label, "config": record.config}, record.lines
    return {"label": pathlib.Path(path).resolve().name, "config": config, "directory": str(path)}, record.lines


def readouts(lines: Iterable[Line]) -> list[str]:
    """Returns the names of all read-outs that were evaluated, in order."""
    names: dict[str, None] = {}
    for line in lines:
        names |= dict.fromkeys(name for name, value in line.items() if isinstance(value, dict))
    return list(names)


def readout_name(read: str) -> str:
    """Returns the name of a read-out in metrics.jsonl.

    >>> readout_name("wima:window=100,part=classifier")
    'wima100_classifier'

    Args:
      read: an observer's text, as in --observe; empty for the trained model.
    """
    if not read:
        return "model"
    choice = OBSERVERS.check(read)
    if choice.name != "wima":
        return choice.name
    return wima_name(**{name: value for name, value in choice.params.items() if name != "warmup"})


def metric_of(found: Sequence[Series], wanted: str) -> str:
    """Returns the metric that is drawn: as wanted, or without a wish the one that the first run is ranked by."""
    return wanted or main_metric(next((line[each.readout] for each in found for line in each.lines[:1]), ()))


def series(paths: Sequence[str | pathlib.Path], wanted: Sequence[str] = (), labels: Sequence[str] = ()) -> list[Series]:
    """Returns the curves of runs and read-outs.

    Args:
      wanted: read-outs, from the runs that have them; empty: all of every run.
      labels: one per path; empty: the runs' own.

    Raises:
      UserError: no run has a read-out of `wanted`, or the number of labels differs from that of paths.
    """
    if labels and len(labels) != len(paths):
        raise UserError(f"{len(labels)} label(s) for {len(paths)} run(s); give one each.")
    runs = [read(path) for path in paths]
    available = dict.fromkeys(name for _, lines in runs for name in readouts(lines))
    for name in wanted:
        one_of("readouts", name, available)
    names = list(labels) or [header["label"] for header, _ in runs]
    names = names if len(set(names)) == len(names) else list(map(str, paths))
    curves = []
    for name, (header, lines) in zip(names, runs):
        own = [readout for readout in readouts(lines) if readout in (wanted or available)]
        # A single read-out is not named in the label.
        named = len(own) > 1 or len(wanted) > 1
        curves += [Series(f"{name}: {own_name}" if named else name, lines, own_name, 0, header) for own_name in own]
    return curves


def describe(series: Sequence[Series]) -> str:
    """Returns the settings that all curves share, and the numbers of seeds, for a title."""
    parts = []
    for name in ("dataset", "partition", "model"):
        values = {str(source.header.get("config", {}).get(name, "")) for source in series}
        parts += [value for value in values if len(values) == 1 and value]
    counts = sorted({len({line["seed"] for line in source.lines}) for source in series})
    return ", ".join([*parts, f"{' or '.join(map(str, counts))} seed{'s' if counts[-1] > 1 else ''}"])


def config_of(directory: str | pathlib.Path) -> dict[str, Any]:
    """Returns the configuration of a run.

    Raises:
      UserError: the directory is not that of a run.
    """
    if not os.path.isfile(os.path.join(directory, "config.json")):
        raise UserError(f"{directory}: this is not the directory of a run; `fedwin list runs` shows them.")
    return directories.read_config(pathlib.Path(directory)).config
