"""Figures of trained models: computed once from checkpoints, stored as JSON, redrawn from that."""

import functools
import gzip
import json
import pathlib
import zlib
from typing import Any

from fedwin import data
from fedwin.errors import UserError
from fedwin.files import writing
from fedwin.registry import parse
from fedwin.runs.load import TrainedModel, client_models

from ..figures import factors, forgetting, labels, line, models, plane, probing, stored
from ..papers.items import Analysis
from .pictures import DATA
from .plan import RunDirectory
from .readings import READINGS, readings

# Seed of the partitions of a label histogram.
SEED = 0


def compute(item: Analysis, scale: str, directories: dict[str, RunDirectory], data_dir: str) -> dict[str, Any]:
    """Returns the data of a figure of the first seed, and the numbers that claims compare of all seeds, as JSON values.

    Args:
      item: the figure.
      scale: smoke, trend or paper.
      directories: name of a run -> its finished directory.
      data_dir: folder of the data sets' files.

    Raises:
      UserError: the figure's kind is unknown, or a checkpoint is missing.
    """
    if item.kind == labels.KIND:
        return _labels(item, scale, data_dir)
    seeds = _seeds(item, scale, directories)
    figures = {str(seed): _of_seed(item, scale, directories, data_dir, seed) for seed in seeds}
    found = {READINGS: {seed: readings(figure) for seed, figure in figures.items()}} if item.claims else {}
    return {**next(iter(figures.values())), **found}


def _of_seed(
    item: Analysis, scale: str, directories: dict[str, RunDirectory], data_dir: str, seed: int
) -> dict[str, Any]:
    """Returns the data of a figure of one seed."""
    options = dict(item.options_at(scale))
    titles = {run.name: run.title for run in item.runs}
    paths = {titles[name]: directory.path for name, directory in directories.items()}
    rounds = item.checkpoints(scale)
    if item.kind == factors.KIND:
        return _factors(tuple(paths.items()), rounds, seed, data_dir, tuple(options.items()))
    if item.kind == forgetting.KIND:
        return forgetting.compute(paths, round=rounds[-1], seed=seed, data_dir=data_dir or None, **options)
    addresses = [models.Address(str(path), round) for path in paths.values() for round in rounds]
    named = _named(list(paths), rounds, models.loaded(addresses, seed, data_dir or None))
    variables = {label: model.variables for label, model in named.items()}
    trained = next(iter(named.values()))
    if item.kind == line.KIND:
        return line.compute(trained, dict(list(variables.items())[:2]), **options)
    if item.kind == plane.KIND:
        return _plane(trained, list(variables.items()), **options)
    raise UserError(f"{item.name}: unknown kind of figure '{item.kind}'.")


@functools.cache  # several figures show panels of the same data
def _factors(
    paths: tuple[tuple[str, pathlib.Path], ...],
    rounds: tuple[int, ...],
    seed: int,
    data_dir: str,
    options: tuple[tuple[str, Any], ...],
) -> dict[str, Any]:
    """Returns the factors of runs, see `factors.compute`."""
    return factors.compute(dict(paths), rounds=rounds, seed=seed, data_dir=data_dir or None, **dict(options))


def _seeds(item: Analysis, scale: str, directories: dict[str, RunDirectory]) -> list[int]:
    """Returns the seeds whose models are analyzed: the item's own that all runs have trained, or any that they have."""
    common = set.intersection(*(set(directory.seeds) for directory in directories.values()))
    return [seed for seed in item.seeds_at(scale) if seed in common] or sorted(common)


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


def _labels(item: Analysis, scale: str, data_dir: str) -> dict[str, Any]:
    """Returns the histograms of the labels of every run's partition."""
    histograms = {}
    titles = {run.name: run.title for run in item.runs}
    for name, run in item.trajectories(scale).items():
        config = run.config()
        dataset = data.load(config.dataset, data_dir)
        by_partition = labels.of_partitions(dataset, [config.partition], config.num_clients or None, SEED)
        histograms[titles[name]] = by_partition[config.partition]
    return labels.compute(histograms, **item.options_at(scale))


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
        figure.pop(READINGS, None)
    except (ValueError, KeyError, AttributeError) as error:
        raise UserError(f"the data of {item.name} are damaged ({type(error).__name__}); compute it again.") from error
    if item.shows:
        figure["panels"] = list(item.shows)
    stored.module_of(item.kind).draw(figure, path, f"{item.name} ({_setting(item, scale)}): {item.title}")


def _setting(item: Analysis, scale: str) -> str:
    """Returns the scale, and which data set stands in for which where it is not the paper's own."""
    names = [run.config().dataset for each in (scale, "paper") for run in list(item.trajectories(each).values())[:1]]
    used, wanted = (DATA.get(name, name) for name in (parse(text).name for text in names))
    return scale if used == wanted else f"{scale}, {used} for {wanted}"
