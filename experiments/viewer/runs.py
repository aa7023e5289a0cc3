"""Runs that the viewer shows: run directories and stored results, with their curves, configuration and provenance."""

import contextlib
import csv
import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedwin.callbacks.scores import is_lower, is_share, mean_of
from fedwin.errors import UserError
from fedwin.registry.choices import parse
from fedwin.runs.client_evaluations import client_table
from fedwin.runs.config import Config

from .. import records
from ..cli import command_line
from ..figures import clients, curves, sources, style
from ..records import DEFAULTS, Json, Record, run_directories
from ..reproduction.results import ALWAYS, curve_of, rounded

# Fields whose texts name files, and are not choices.
PATHS = ("out_dir", "data_dir", "fork_from", "init_from", "imports", "track")
# Bins of a histogram of clients.
BINS = 20
# Points of all curves of one metric together, and limits for one of them.
TOTAL, FEWEST, MOST = 40_000, 40, 500
# Numbers of a run in the tables and filters, besides those of its read-outs.
NUMBERS = ("round", "num_rounds", "MB", "seconds", "simulated_seconds")


@dataclasses.dataclass(frozen=True)
class ViewedRun:
    """One run, as JSON data.

    Attributes:
      name: name of the run, different from those of the other runs of a page.
      folder: folder above its directory, the group to which it belongs.
      settings: fields of Config that differ from the defaults, parameters of choices, name, state, and NUMBERS.
      command: command that runs it; '' if it is unknown.
      facts: provenance, title -> text.
      curves: one per read-out and metric, see `_curve`.
      histograms: histograms of clients, bins of all of them.
      grid: axes of the sweep that it is a run of; empty: none.
    """

    name: str
    folder: str
    settings: Json
    command: str
    facts: dict[str, str]
    curves: list[Json]
    histograms: list[Json]
    grid: list[str] = dataclasses.field(default_factory=list)


def thinned(rounds: np.ndarray, values: np.ndarray, most: int) -> np.ndarray:
    """Returns the indices of the evaluations that are drawn: all of a curve with at most `most`, else

        the first, the last, and the lowest and the highest of each of (most - 2) // 2 equal spans of rounds

    so that jumps from round to round, and extremes, stay visible. An undefined value (NaN) counts as the highest.

    Args:
      rounds: rounds of the evaluations, increasing [n].
      values: values of the metric [n].
      most: number of points, at least 4.

    Returns:
      Indices, increasing [m], m <= most.
    """
    if len(rounds) <= most:
        return np.arange(len(rounds))
    spans = (most - 2) // 2
    span = np.minimum(((rounds - rounds[0]) / (rounds[-1] - rounds[0]) * spans).astype(int), spans - 1)
    order = np.lexsort((values, span))
    starts = np.flatnonzero(np.diff(span[order], prepend=-1))
    ends = np.append(starts[1:], len(rounds)) - 1
    return np.unique(np.concatenate([[0, len(rounds) - 1], order[starts], order[ends]]))


def find(paths: Iterable[str | pathlib.Path]) -> dict[pathlib.Path, str]:
    """Returns path -> name of runs: directories, those below folders, and packed runs; UserError for a missing path.

    Names are relative to the folder above all of them.
    """
    arguments = [pathlib.Path(path) for path in paths]
    found: dict[pathlib.Path, pathlib.Path] = {}
    for argument in arguments:
        if argument.name.endswith(records.SUFFIX) and argument.is_file():
            inside = [argument]
        elif argument.is_dir():
            inside = run_directories(argument)
        else:
            raise UserError(f"{argument}: neither a folder nor a packed run (*{records.SUFFIX}); check the path.")
        for path in inside:
            found.setdefault(path.resolve(), path)
    above = pathlib.Path(os.path.commonpath([str(argument.resolve()) for argument in arguments] or ["/"]))
    return {path: os.path.relpath(full, above) if full != above else full.name for full, path in found.items()}


def read(path: pathlib.Path, name: str, most: int = MOST) -> ViewedRun:
    """Reads a run directory or a stored result; raises UserError if it is damaged, altered, or no run's."""
    record = records.read(path)
    command = command_line.train_command(Config(**record.config)) if record.directory is not None else ""
    grid = _grid(path.parent / "sweep.csv", record.about.get("fingerprint", ""))
    return dataclasses.replace(of_record(record, name, command, most), grid=grid)


def _grid(path: pathlib.Path, fingerprint: str) -> list[str]:
    """Returns the axes of a sweep whose table has a run; [] without a table, or for other runs."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        swept = {row[head.index("fingerprint")] for row in rows}
        return head[head.index("winner") + 1 : head.index("readout")] if fingerprint in swept else []
    except (OSError, ValueError, IndexError, csv.Error):  # no table, or one of something else
        return []


def of_record(record: Record, name: str, command: str = "", most: int = MOST) -> ViewedRun:
    """Returns a run from its evaluations."""
    lines, config = record.lines, record.about["config"]
    pairs = dict.fromkeys((r, metric) for r in sources.readouts(lines) for line in lines for metric in line.get(r, ()))
    shown = [curve for pair in pairs if (curve := _curve(record, *pair, most)) is not None]
    folder = str(pathlib.PurePath(name).parent)
    changed = {field: value for field, value in config.items() if field in ALWAYS or value != DEFAULTS.get(field)}
    own = {"run": name, "state": _state(record)} | _numbers(record)
    settings = style.plain(changed | parameters(config) | own)
    facts, bins = _facts(record, name), _histograms(record, name)
    return ViewedRun(name, "" if folder == "." else folder, settings, command, facts, shown, bins)


def parameters(config: Mapping[str, Any]) -> Json:
    """Returns the parameters of choices: {'partition.alpha': 0.1} of partition='dirichlet:alpha=0.1'."""
    found: Json = {}
    for name, value in config.items():
        texts = value if isinstance(value, list) else [value]
        if name in PATHS or not all(isinstance(text, str) for text in texts):
            continue
        for text in texts:
            with contextlib.suppress(UserError):
                found |= {f"{name}.{key}": each for key, each in parse(text).params.items()}
    return found


def _curve(record: Record, readout: str, metric: str, most: int) -> Json | None:
    """Returns one metric of one read-out, shares in percent; None without a number.

    Its `final` (mean and std over seeds of the last rounds), `last` and `best` (with its round) are of all evaluations,
    `axes`, `mean` and `std` have at most `most` points.
    """
    series = sources.Series(readout, record.lines, readout, stopped=record.stopped, diverged=record.diverged)
    try:
        rounds, values = curves.curve(series, metric)
    except (UserError, TypeError, ValueError):
        return None
    if not len(rounds):
        return None
    factor = 100 if is_share(metric) else 1
    values = factor * np.where(np.isfinite(values), values, np.nan)
    mean = values.mean(0)
    final = [None if number is None else factor * number for number in _final(record, readout, metric)]
    best: tuple[float | None, int | None] = None, None
    if np.isfinite(mean).any():
        place = int((np.nanargmin if is_lower(metric) else np.nanargmax)(mean))
        best = float(mean[place]), int(rounds[place])
    kept = thinned(rounds, mean, most)
    axes: dict[str, list] = {"round": rounds[kept].tolist()}
    for axis in [axis for axis in curves.AXES if axis != "round"]:
        with contextlib.suppress(UserError):  # not every evaluation has it
            axes[axis] = rounded(curves.places(series, rounds[kept], axis))
    found = {"readout": readout, "metric": metric, "final": final, "last": float(mean[-1]), "best": best, "axes": axes}
    lost = record.diverged.keys() >= {*record.seeds}  # the newest evaluation is from before
    found["score"] = None if lost else found["last"] if final[0] is None else final[0]
    found["mean"] = rounded(mean[kept].tolist())
    return style.plain(found | ({"std": rounded(values.std(0, ddof=1)[kept].tolist())} if len(values) > 1 else {}))


def _final(record: Record, readout: str, metric: str) -> tuple[float | None, float | None]:
    """Returns mean and deviation over seeds of the means of the last rounds; None unless every seed has ended."""
    if record.summary is not None and "over_seeds" in record.summary:
        known = record.summary["over_seeds"].get(readout, {}).get(metric, {})
        return known.get("mean"), known.get("std")
    config = Config(**record.config)
    seeds = sorted({*record.seeds} - record.diverged.keys())
    found = [curve_of(record, seed, readout, metric, config) for seed in seeds]
    finals = [curve.final for curve in found if curve is not None]
    means = [final for final in finals if final is not None]
    if not means or len(means) < len(finals):
        return None, None
    return float(np.mean(means)), float(np.std(means, ddof=1)) if len(means) > 1 else None


def _state(record: Record) -> str:
    seeds = lambda some: ", ".join(map(str, sorted(some)))
    if not record.lines:
        return "no evaluation yet"
    if record.directory is not None and record.summary is None:
        return "unfinished"
    if record.diverged:
        return f"diverged: seed {seeds(record.diverged)}"
    return f"stopped early: seed {seeds(record.stopped)}" if record.stopped else "finished"


def _facts(record: Record, name: str) -> dict[str, str]:
    about, stored = record.about, record.stored
    pairs = lambda facts: ", ".join(f"{key} {value}" for key, value in facts.items() if value)
    facts = {"run": name} if record.directory is None else {"directory": str(record.directory)}
    facts |= {title: about.get(title, "") for title in ("fingerprint", "strategy", "device")}
    facts |= {"machine": stored.get("machine", ""), "versions": pairs(about.get("versions", {}))}
    facts |= {"data": pairs(stored.get("data", {})), "stored on": stored.get("day", "")}
    return {title: str(text) for title, text in facts.items() if text}


def _numbers(record: Record) -> Json:
    lines = record.lines
    newest = {line["seed"]: line["round"] for line in lines}
    simulated = {line["seed"]: line["simulated_seconds"] for line in lines if "simulated_seconds" in line}
    numbers = {
        "round": min(newest.values(), default=0),
        "num_rounds": record.config["num_rounds"],
        "MB": mean_of(records.megabytes(lines).values()),
        "seconds": sum(record.seconds.values()) if record.seconds else None,
        "simulated_seconds": mean_of(simulated.values()),
    }
    return {name: value for name, value in numbers.items() if value is not None}


def _histograms(record: Record, name: str) -> list[Json]:
    """Returns the bins of the newest evaluation of clients, all seeds together; none without one."""
    if record.directory is None or not any("clients" in line for line in record.lines):
        return []
    tables: list[clients.Table] = []
    for seed in record.seeds:
        with contextlib.suppress(UserError):  # this seed has none yet
            tables.append(client_table(record.directory, seed))
    found: list[Json] = []
    for metric in ("accuracy", "rmse", "loss"):
        for model in dict.fromkeys(each for table in tables for each in clients.models_of(table, metric)):
            some = [table for table in tables if f"{model}.{metric}" in table]
            for seen in (True, False):
                values = [table[f"{model}.{metric}"][table["seen"] == seen].astype(float) for table in some]
                seeds = f", {len(some)} seeds" if len(some) > 1 else ""
                title = f"{name}, {model}{seeds}" if seen else f"{name}, {model}{seeds}, unseen clients"
                found += _bins(np.concatenate(values), title, metric)
    return found


def _bins(values: np.ndarray, title: str, metric: str) -> Sequence[Json]:
    values = values[np.isfinite(values)] * (100 if is_share(metric) else 1)
    if not len(values):
        return []
    low, high = (0.0, 100.0) if is_share(metric) else (float(values.min()), float(values.max()))
    counts, edges = np.histogram(values, BINS, (low, high if high > low else low + 1))
    percentile = 90 if is_lower(metric) else 10
    worst = f"{percentile}th percentile {np.percentile(values, percentile):.4g}"
    title += f"\n{style.axis_of(metric, '')} of clients, {len(values)} results\nmean {values.mean():.4g}, {worst}"
    common = {"title": title, "metric": metric}
    bins = zip(edges[:-1], edges[1:], counts)
    return [common | {"lo": float(lo), "hi": float(hi), "share": 100 * int(n) / len(values)} for lo, hi, n in bins]
