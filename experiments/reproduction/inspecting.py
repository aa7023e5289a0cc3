"""Figures that look into trained models: computed once from checkpoints, kept as JSON, redrawn from that."""

import gzip
import json
import pathlib
from typing import Any

from fedwin import data
from fedwin.errors import UserError
from fedwin.files import writing
from fedwin.runs.load import TrainedModel, client_models

from ..figures import factors, forgetting, kept, labels, line, models, plane, probing
from ..papers.items import Analysis
from .places import Unit

# Partitions of a histogram are drawn from this seed.
SEED = 0


def compute(item: Analysis, scale: str, units: dict[str, Unit], data_dir: str) -> dict[str, Any]:
    """Returns what a figure shows, as JSON data.

    Args:
      item: the figure.
      scale: smoke, trend or paper.
      units: name of a run -> its finished directory.
      data_dir: folder of the data sets' files.
    """
    options = dict(item.options_at(scale))
    titles = {entry.name: entry.title for entry in item.runs}
    directories = {titles[name]: unit.directory for name, unit in units.items()}
    seed, rounds = _seed(item, units), item.checkpoints(scale)
    if item.kind == labels.KIND:
        return _labels(item, scale, data_dir, options)
    if item.kind == factors.KIND:
        return factors.compute(directories, rounds=rounds, seed=seed, data_dir=data_dir or None, **options)
    if item.kind == forgetting.KIND:
        return forgetting.compute(directories, round=rounds[-1], seed=seed, data_dir=data_dir or None, **options)
    addresses = [models.Address(str(directory), round) for directory in directories.values() for round in rounds]
    found = models.loaded(addresses, seed, data_dir or None)
    named = _named(list(directories), rounds, found)
    variables = models.variables(named)
    trained = next(iter(named.values()))
    if item.kind == line.KIND:
        return line.compute(trained, dict(list(variables.items())[:2]), **options)
    if item.kind == plane.KIND:
        return _plane(trained, list(variables.items()), **options)
    raise UserError(f"{item.name}: there is no figure of kind '{item.kind}'.")


def _seed(item: Analysis, units: dict[str, Unit]) -> int:
    """Returns whose models are looked at: the item's own seed, or where others were asked for, the first of those."""
    trained = [set(unit.seeds) for unit in units.values()]
    known = set.intersection(*trained) if trained else set(item.seeds)
    return item.seeds[0] if item.seeds[0] in known or not known else min(known)


def _named(labels_: list[str], rounds: tuple[int, ...], found) -> dict[str, Any]:
    """Returns label -> model: the run's name, its round, or both, as far as they tell models apart."""
    several_runs, several_rounds = len(labels_) > 1, len(rounds) > 1
    names = [
        ", ".join(
            [*([label] if several_runs else []), *([f"round {round}"] if several_rounds or not several_runs else [])]
        )
        for label in labels_
        for round in rounds
    ]
    return dict(zip(names, found, strict=True))


def _plane(trained: TrainedModel, shown: list[tuple[str, Any]], clients: int = 0, **options) -> dict[str, Any]:
    """Returns the plane through the first three models, or through what some clients make of the first one."""
    if clients:
        ids = probing.cohort(trained, most=clients)
        made = zip((f"client {client}" for client in ids), client_models(trained, ids), strict=True)
        shown = [*made, ("received model", trained.variables)]
    return plane.compute(trained, dict(shown[:3]), dict(shown[3:]), **options)


def _labels(item: Analysis, scale: str, data_dir: str, options: dict[str, Any]) -> dict[str, Any]:
    histograms = {}
    titles = {entry.name: entry.title for entry in item.runs}
    for name, run in item.trajectories(scale).items():
        config = run.config()
        dataset = data.load(config.dataset, data_dir)
        found = labels.of_partitions(dataset, [config.partition], config.num_clients or None, SEED)
        histograms[titles[name]] = found[config.partition]
    return labels.compute(histograms, **options)


def write(item: Analysis, found: dict[str, Any], path: pathlib.Path) -> None:
    """Writes what a figure shows to a compressed JSON file."""
    text = json.dumps({"title": item.title, **_rounded(found)}, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _rounded(value: Any) -> Any:
    """Returns JSON data with six digits of every number: no eye sees more, and files stay small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def redraw(item: Analysis, scale: str, source: pathlib.Path, path: pathlib.Path) -> None:
    """Draws a kept figure.

    Raises:
      UserError: it is damaged.
    """
    try:
        found = json.loads(gzip.decompress(source.read_bytes()))
        found.pop("title")
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UserError(f"{source} is damaged ({type(error).__name__}); restore it, or compute it anew.") from error
    if item.shows:
        found["panels"] = list(item.shows)
    kept.kind_of(item.kind).draw(found, path, f"{item.name} ({scale}): {item.title}")
