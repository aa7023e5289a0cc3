"""Learning curves of runs and packed runs."""

import pathlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from fedwin.callbacks.scores import main_metric
from fedwin.errors import UserError
from fedwin.observers import OBSERVERS, wima_name
from fedwin.registry.ranges import one_of

from .. import records
from ..records import Json, Line


class Series(NamedTuple):
    """One curve of a figure.

    Attributes:
      lines: evaluations of all seeds, as in metrics.jsonl.
      since: the first round that is shown; before its start a window average equals the model.
      config: fields of Config.
      stopped: seeds that were stopped early.
      diverged: seed -> round in which it diverged, of a finished run; also between two evaluations.
    """

    label: str
    lines: list[Line]
    readout: str = "model"
    since: int = 0
    config: Json = {}
    stopped: Collection[int] = ()
    diverged: Mapping[int, int] = {}


def readouts(lines: Iterable[Line]) -> list[str]:
    """Returns the names of all read-outs that were evaluated, in order."""
    return list(dict.fromkeys(name for line in lines for name, value in line.items() if isinstance(value, dict)))


def readout_name(read: str) -> str:
    """Returns the name in metrics.jsonl of a read-out, given as in --observe; '' is the trained model.

    >>> readout_name("wima:window=100,part=classifier")
    'wima100_classifier'
    """
    if not read:
        return "model"
    choice = OBSERVERS.check(read)
    if choice.name != "wima":
        return choice.name
    return wima_name(**{name: value for name, value in choice.params.items() if name != "warmup"})


def metric_of(found: Sequence[Series], wanted: str) -> str:
    """Returns the metric that is drawn: the wanted one, or by default the one that the first run is ranked by."""
    return wanted or main_metric(next((line[each.readout] for each in found for line in each.lines[:1]), ()))


def labels_of(paths: Sequence[str | pathlib.Path], given: Sequence[str], usual: Sequence[str]) -> list[str]:
    """Returns a label per path: those given, else the usual or, if some are equal, the paths; UserError if not one."""
    names = list(given) or list(usual if len(set(usual)) == len(usual) else map(str, paths))
    if not len(set(names)) == len(names) == len(paths):
        raise UserError(f"{len(set(names))} different label(s) for {len(paths)} run(s); give one each.")
    return names


def series(paths: Sequence[str | pathlib.Path], wanted: Sequence[str] = (), labels: Sequence[str] = ()) -> list[Series]:
    """Returns the curves of runs and read-outs.

    Args:
      wanted: read-outs, from the runs that have them; empty: all of every run.
      labels: one per path; empty: the runs' own.

    Raises:
      UserError: a path is not a run, or is one without evaluations; no run has a read-out of `wanted`; wrong labels.
    """
    runs = [records.read(path) for path in paths]
    if empty := [path for path, run in zip(paths, runs) if not run.lines]:
        raise UserError(f"{empty[0]} has no evaluation yet; continue the run.")
    available = dict.fromkeys(name for run in runs for name in readouts(run.lines))
    for name in wanted:
        one_of("readouts", name, available)
    names = labels_of(paths, labels, [run.name for run in runs])
    names = [f" {name}" if name.startswith("_") else name for name in names]  # legends leave `_name` out
    curves = []
    for name, run in zip(names, runs):
        own = [readout for readout in readouts(run.lines) if readout in (wanted or available)]
        # A single read-out is not named in the label.
        named = len(own) > 1 or len(wanted) > 1
        for readout in own:
            label = f"{name}: {readout}" if named else name
            curves.append(Series(label, run.lines, readout, 0, run.config, run.stopped, run.diverged))
    return curves


def describe(series: Sequence[Series]) -> str:
    """Returns the settings that all curves share, and the numbers of seeds, for a title."""
    parts = []
    for name in ("dataset", "partition", "model"):
        values = {str(source.config.get(name, "")) for source in series}
        parts += [value for value in values if len(values) == 1 and value]
    counts = sorted({len({line["seed"] for line in source.lines}) for source in series})
    return ", ".join([*parts, f"{' or '.join(map(str, counts))} seed{'s' if counts[-1] > 1 else ''}"])
