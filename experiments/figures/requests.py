"""Computes the figure that the arguments and flags of `fedwin figure` request, with its default title."""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedwin import data
from fedwin.errors import UserError
from fedwin.registry import nearest
from fedwin.runs.client_evaluations import client_table
from fedwin.runs.load import client_models

from ..cli import flag_errors, unused
from . import clients, factors, forgetting, labels, line, models, plane, smoothness, sources, sweeps, targets

# (result of `compute`, title)
Answer = tuple[dict[str, Any], str]


def _numbers(flag: str, values: Sequence[str], kind: type) -> list[Any]:
    """Returns the values of a list flag as numbers.

    Raises:
      UserError: one is not a number.
    """
    try:
        for value in values:
            flag_errors.check_number(value, kind)
        return [kind(value) for value in values]
    except ValueError:
        wanted = "integers" if kind is int else "numbers"
        raise UserError(f"flag --{flag}={','.join(values)} must be {wanted}, separated by commas.") from None


def _directories(arguments: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """Returns label -> directory of a run.

    Raises:
      UserError: there is no such run, or the labels are not different, one per run.
    """
    for argument in arguments:
        if not os.path.isdir(argument):
            raise UserError(f"{argument}: there is no such run; name its directory.")
    names = list(labels) or [pathlib.Path(argument).resolve().name for argument in arguments]
    if not labels and len(set(names)) < len(names):
        names = list(arguments)
    if len(names) != len(arguments) or len(set(names)) < len(names):
        raise UserError(f"{len(arguments)} run(s), {len(set(names))} different label(s); give every run its own.")
    return dict(zip(names, arguments))


def _models(arguments: Sequence[str], options) -> tuple[Any, dict[str, Any]]:
    """Returns (the first model, label -> Variables) for the addresses of models."""
    addresses = [models.address(argument) for argument in arguments]
    trained = models.loaded(addresses, options.seed, options.data_dir)
    named = models.labelled(addresses, trained)
    if options.labels:
        if len(options.labels) != len(arguments):
            raise UserError(f"{len(options.labels)} label(s) for {len(arguments)} model(s); give one each.")
        named = dict(zip(options.labels, trained))
    return trained[0], models.variables(named)


def _of_plane(arguments: Sequence[str], options) -> Answer:
    clients = _numbers("clients", options.clients, int)
    if clients and (len(arguments) != 1 or len(clients) != 3):
        raise UserError("plane: with --clients name one model and three clients, --clients=3,7,11.")
    if not clients and len(arguments) < 3:
        raise UserError(f"plane: {len(arguments)} model(s); name three, or one and --clients=3,7,11.")
    if clients:
        unused.refuse(["labels"], "with --clients")
    trained, named = _models(arguments, options)
    if clients:
        names = [f"client {client}" for client in clients]
        corners, further = dict(zip(names, client_models(trained, clients))), {"received model": trained.variables}
        subject = f"clients {', '.join(map(str, clients))} after round {trained.round}"
    else:
        items = list(named.items())
        corners, further, subject = dict(items[:3]), dict(items[3:]), "three models"
    points = {"points": options.points} if options.points else {}
    result = plane.compute(
        trained,
        corners,
        further,
        count=options.examples,
        recompute=options.recompute,
        chunk=options.chunk or None,
        **points,
    )
    return result, f"{trained.prepared.dataset.name}: the plane through {subject}"


def _of_line(arguments: Sequence[str], options) -> Answer:
    if len(arguments) != 2:
        raise UserError(f"line: {len(arguments)} model(s); name two.")
    trained, named = _models(arguments, options)
    s = np.linspace(line.BEGIN, line.END, options.points).tolist() if options.points else None
    result = line.compute(
        trained, named, s, count=options.examples, recompute=options.recompute, chunk=options.chunk or None
    )
    return result, f"{trained.prepared.dataset.name}: from {' to '.join(named)}"


def _of_factors(arguments: Sequence[str], options) -> Answer:
    result = factors.compute(
        _directories(arguments, options.labels),
        rounds=_numbers("rounds", options.rounds, int),
        clients=_numbers("clients", options.clients, int),
        seed=options.seed,
        replicas=options.replicas,
        count=options.examples or factors.EXAMPLES,
        data_dir=options.data_dir,
    )
    return result, "Five factors of the global model's loss"


def _of_forgetting(arguments: Sequence[str], options) -> Answer:
    clients = _numbers("clients", options.clients, int)
    result = forgetting.compute(
        _directories(arguments, options.labels),
        round=options.round,
        clients=clients,
        seed=options.seed,
        data_dir=options.data_dir,
    )
    return result, "Forgetting in one local training"


def _of_smoothness(arguments: Sequence[str], options) -> Answer:
    series = sources.series(arguments, options.readouts, options.labels)
    result = smoothness.compute(series, options.metric, options.last, options.step)
    return result, f"Jumps of the {options.metric} from round to round"


def _of_targets(arguments: Sequence[str], options) -> Answer:
    wanted = _numbers("target", options.target, float)
    series = sources.series(arguments, options.readouts, options.labels)
    costs: dict[str, int | None] = {}
    for source in series:
        name = source.header.get("directory", source.header["label"])
        # A stored result without traffic is compared by rounds alone.
        if name not in costs:
            costs[name] = (
                sources.bytes_per_round(source.header, options.data_dir) if sources.has_traffic(source.header) else None
            )
    per_round = [costs[source.header.get("directory", source.header["label"])] for source in series]
    result = targets.compute(series, wanted, per_round, options.metric)
    print(targets.table(result))
    return result, f"Until the {options.metric} is first reached"


def _of_sweeps(arguments: Sequence[str], options) -> Answer:
    if not options.parameter:
        raise UserError("sweeps: name the parameter in which the runs differ, such as --parameter=clients_per_round.")
    series = sources.series(arguments, options.readouts)
    result = sweeps.compute(
        sweeps.of_runs(series, options.parameter, options.metric, options.last), options.parameter, options.metric
    )
    return result, f"{options.metric}, mean of the last {options.last} rounds"


def _of_labels(arguments: Sequence[str], options) -> Answer:
    clients = _numbers("clients", options.clients, int)
    runs = [argument for argument in arguments if os.path.isdir(argument)]
    partitions = [argument for argument in arguments if argument not in runs]
    # A missing path is reported as an unknown partition.
    for argument in partitions:
        data.PARTITIONS.check(argument)
    if partitions:
        unused.refuse(["labels"], "on partitions, which are their own labels")
    else:
        unused.refuse(["dataset", "num_clients"], "on runs, which have their own")
    histograms: dict[str, Any] = {}
    for label, directory in _directories(runs, options.labels if not partitions else ()).items():
        prepared = sources.prepared_run(directory, options.data_dir)
        seed = options.seed if options.seed in prepared.federations else prepared.config.seeds[0]
        counts = prepared.federations[seed].info.get("train")
        if counts is None:
            raise UserError(f"{directory}: '{prepared.dataset.name}' has no classes; label histograms need some.")
        histograms[label], dataset = counts, prepared.dataset
    if partitions:
        dataset = data.load(options.dataset, options.data_dir)
        histograms |= labels.of_partitions(dataset, partitions, options.num_clients, options.seed)
    result = labels.compute(histograms, dataset.class_names, clients or labels.CLIENTS)
    return result, f"{dataset.name}: classes that clients hold"


def _of_clients(arguments: Sequence[str], options) -> Answer:
    directories = _directories(arguments, options.labels)
    tables = {label: client_table(path, options.seed, options.round) for label, path in directories.items()}
    result = clients.compute(tables, options.metric, options.readouts)
    after = "" if options.round is None else f" after round {options.round}"
    return result, f"{options.metric} of clients on their own examples{after}"


REQUESTS: dict[str, Callable[[Sequence[str], Any], Answer]] = {
    "plane": _of_plane,
    "line": _of_line,
    "factors": _of_factors,
    "forgetting": _of_forgetting,
    "smoothness": _of_smoothness,
    "targets": _of_targets,
    "sweeps": _of_sweeps,
    "labels": _of_labels,
    "clients": _of_clients,
}
_OF_MODELS = ("labels", "data_dir", "seed", "examples", "points", "recompute", "chunk")
_OF_EVALUATIONS = ("labels", "readouts", "metric")
# Kind of figure -> its flags besides --out and --title.
FLAGS: dict[str, tuple[str, ...]] = {
    "plane": (*_OF_MODELS, "clients"),
    "line": _OF_MODELS,
    "factors": ("labels", "data_dir", "seed", "clients", "rounds", "replicas", "examples"),
    "forgetting": ("labels", "data_dir", "seed", "clients", "round"),
    "smoothness": (*_OF_EVALUATIONS, "last", "step"),
    "targets": (*_OF_EVALUATIONS, "target", "data_dir"),
    "sweeps": ("readouts", "metric", "last", "parameter"),
    "labels": ("labels", "data_dir", "seed", "clients", "dataset", "num_clients"),
    "clients": (*_OF_EVALUATIONS, "seed", "round"),
}


def check(kind: str, runs: Sequence[str]) -> None:
    """Checks the arguments of `fedwin figure`.

    Args:
      kind: of figure.
      runs: the other arguments.

    Raises:
      UserError: an unknown kind, or no run.
    """
    if kind == "curves":
        raise UserError("curves are drawn by another subcommand: fedwin curves RUN ....")
    if kind not in REQUESTS:
        raise UserError(f"there is no figure '{kind}'.{nearest(kind, REQUESTS)} Available: {', '.join(REQUESTS)}.")
    if not runs:
        raise UserError(f"name the runs: fedwin figure {kind} RUN ..., see --help.")
