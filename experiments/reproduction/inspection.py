"""Figures of trained models: computed once from checkpoints, stored as JSON, redrawn from that."""

import gzip
import json
import pathlib
import zlib
from typing import Any

from fedwin import data
from fedwin.errors import UserError
from fedwin.files import writing
from fedwin.runs.load import TrainedModel, client_models

from ..figures import factors, forgetting, labels, line, models, plane, probing, stored
from ..papers.items import Analysis
from .plan import RunDirectory

# Seed of the partitions of a label histogram.
SEED = 0


def compute(item: Analysis, scale: str, directories: dict[str, RunDirectory], data_dir: str) -> dict[str, Any]:
    """Returns the data of a figure, as JSON values.

    Args:
      item: the figure.
      scale: smoke, trend or paper.
      directories: name of a run -> its finished directory.
      data_dir: folder of the data sets' files.

    Raises:
      UserError: the figure's kind is unknown, or a checkpoint is missing.
    """
    options = dict(item.options_at(scale))
    titles = {run.name: run.title for run in item.runs}
    paths = {titles[name]: directory.path for name, directory in directories.items()}
    seed, rounds = _seed(item, directories), item.checkpoints(scale)
    if item.kind == labels.KIND:
        return _labels(item, scale, data_dir, options)
    if item.kind == factors.KIND:
        return factors.compute(paths, rounds=rounds, seed=seed, data_dir=data_dir or None, **options)
    if item.kind == forgetting.KIND:
        return forgetting.compute(paths, round=rounds[-1], seed=seed, data_dir=data_dir or None, **options)
    addresses = [models.Address(str(path), round) for path in paths.values() for round in rounds]
    named = _named(list(paths), rounds, models.loaded(addresses, seed, data_dir or None))
    variables = models.variables(named)
    trained = next(iter(named.values()))
    if item.kind == line.KIND:
        return line.compute(trained, dict(list(variables.items())[:2]), **options)
    if item.kind == plane.KIND:
        return _plane(trained, list(variables.items()), **options)
    raise UserError(f"{item.name}: unknown kind of figure '{item.kind}'.")


def _seed(item: Analysis, directories: dict[str, RunDirectory]) -> int:
    """Returns the seed whose models are analyzed: the item's own, or the smallest one that all runs have trained."""
    trained = [set(directory.seeds) for directory in directories.values()]
    common = set.intersection(*trained) if trained else set(item.seeds)
    return item.seeds[0] if item.seeds[0] in common or not common else min(common)


def _named(titles: list[str], rounds: tuple[int, ...], loaded) -> dict[str, Any]:
    """Returns label -> model, labeled by what distinguishes them: the run's title, the round, or both."""
    several_runs, several_rounds = len(titles) > 1, len(rounds) > 1
    names = [
        ", ".join(
            [*([title] if several_runs else []), *([f"round {round}"] if several_rounds or not several_runs else [])]
        )
        for title in titles
        for round in rounds
    ]
    return dict(zip(names, loaded, strict=True))


def _plane(trained: TrainedModel, shown: list[tuple[str, Any]], clients: int = 0, **options) -> dict[str, Any]:
    """Returns the plane through the first three models, or through those that some clients train from the first."""
    if clients:
        ids = probing.cohort(trained, most=clients)
        made = zip((f"client {client}" for client in ids), client_models(trained, ids), strict=True)
        shown = [*made, ("received model", trained.variables)]
    return plane.compute(trained, dict(shown[:3]), dict(shown[3:]), **options)


def _labels(item: Analysis, scale: str, data_dir: str, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the histograms of the labels of every run's partition."""
    histograms = {}
    titles = {run.name: run.title for run in item.runs}
    for name, run in item.trajectories(scale).items():
        config = run.config()
        dataset = data.load(config.dataset, data_dir)
        by_partition = labels.of_partitions(dataset, [config.partition], config.num_clients or None, SEED)
        histograms[titles[name]] = by_partition[config.partition]
    return labels.compute(histograms, **options)


def write(item: Analysis, figure: dict[str, Any], path: pathlib.Path) -> None:
    """Writes the data of a figure to a compressed JSON file."""
    text = json.dumps({"title": item.title, **_rounded(figure)}, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path):
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _rounded(value: Any) -> Any:
    """Returns JSON values with six digits of every number: a picture shows no more, and files stay small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


def read(source: pathlib.Path) -> str:
    """Returns the data of a figure, as JSON text.

    Args:
      source: the compressed JSON file.

    Raises:
      UserError: the file is damaged.
    """
    try:
        return gzip.decompress(source.read_bytes()).decode()
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise UserError(f"{source} is damaged ({type(error).__name__}); restore it, or compute it again.") from error


def redraw(item: Analysis, scale: str, text: str, path: pathlib.Path) -> None:
    """Draws a figure from its stored data.

    Args:
      item: the figure.
      scale: smoke, trend or paper.
      text: its data, as JSON.
      path: of the picture.

    Raises:
      UserError: the data are damaged.
    """
    try:
        figure = json.loads(text)
        figure.pop("title")
    except (ValueError, KeyError, AttributeError) as error:
        raise UserError(f"the data of {item.name} are damaged ({type(error).__name__}); compute it again.") from error
    if item.shows:
        figure["panels"] = list(item.shows)
    stored.module_of(item.kind).draw(figure, path, f"{item.name} ({scale}): {item.title}")
