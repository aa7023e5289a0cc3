"""What `fedwin figure KIND RUN ...` means: words and flags become a call of `compute`, and a title."""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedwin import data
from fedwin.errors import UserError
from fedwin.registry import nearest
from fedwin.runs.load import client_models

from . import factors, forgetting, labels, line, models, plane, smoothness, sources, sweeps, targets

# (what `compute` returned, a title)
Answer = tuple[dict[str, Any], str]


def _numbers(flag: str, values: Sequence[str], kind: Callable) -> list[Any]:
    """Returns the numbers of a flag that is a list."""
    try:
        return [kind(value) for value in values]
    except ValueError:
        wanted = "integers" if kind is int else "numbers"
        raise UserError(f"flag --{flag}={','.join(values)} must be {wanted}, separated by commas.") from None


def _directories(words: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    """Returns label -> directory of a run.

    Raises:
      UserError: there is no such run, or not one label each.
    """
    for word in words:
        if not os.path.isdir(word):
            raise UserError(f"{word}: there is no such run; name its directory.")
    names = list(given) or [pathlib.Path(word).resolve().name for word in words]
    if not given and len(set(names)) < len(names):
        names = list(words)
    if len(names) != len(words) or len(set(names)) < len(names):
        raise UserError(f"{len(words)} run(s), {len(set(names))} different label(s); give every run its own.")
    return dict(zip(names, words))


def _models(words: Sequence[str], known) -> tuple[Any, dict[str, Any]]:
    """Returns (the first model, label -> Variables) of addresses."""
    addresses = [models.address(word) for word in words]
    found = models.loaded(addresses, known.seed, known.data_dir)
    named = models.labelled(addresses, found)
    if known.labels:
        if len(known.labels) != len(words):
            raise UserError(f"{len(known.labels)} label(s) for {len(words)} model(s); give one each.")
        named = dict(zip(known.labels, found))
    return found[0], models.variables(named)


def _of_plane(words: Sequence[str], known) -> Answer:
    clients = _numbers("clients", known.clients, int)
    if clients and (len(words) != 1 or len(clients) != 3):
        raise UserError("plane: with --clients name one model and three clients, --clients=3,7,11.")
    if not clients and len(words) < 3:
        raise UserError(
            f"plane: {len(words)} model(s) where three span a plane; name three, or one and --clients=3,7,11."
        )
    trained, named = _models(words, known)
    if clients:
        names = [f"client {client}" for client in clients]
        corners, further = dict(zip(names, client_models(trained, clients))), {"received model": trained.variables}
        told = f"clients {', '.join(map(str, clients))} after round {trained.round}"
    else:
        items = list(named.items())
        corners, further, told = dict(items[:3]), dict(items[3:]), "three models"
    options = {"points": known.points} if known.points else {}
    found = plane.compute(
        trained, corners, further, count=known.examples, recompute=known.recompute, chunk=known.chunk or None, **options
    )
    return found, f"{trained.prepared.dataset.name}: the plane through {told}"


def _of_line(words: Sequence[str], known) -> Answer:
    if len(words) != 2:
        raise UserError(f"line: {len(words)} model(s) where two have a line; name two.")
    trained, named = _models(words, known)
    s = np.linspace(line.BEGIN, line.END, known.points).tolist() if known.points else None
    found = line.compute(trained, named, s, count=known.examples, recompute=known.recompute, chunk=known.chunk or None)
    return found, f"{trained.prepared.dataset.name}: from {' to '.join(named)}"


def _of_factors(words: Sequence[str], known) -> Answer:
    found = factors.compute(
        _directories(words, known.labels),
        rounds=_numbers("rounds", known.rounds, int),
        clients=_numbers("clients", known.clients, int),
        seed=known.seed,
        replicas=known.replicas,
        count=known.examples or factors.EXAMPLES,
        data_dir=known.data_dir,
    )
    return found, "Five factors of the global model's loss"


def _of_forgetting(words: Sequence[str], known) -> Answer:
    clients = _numbers("clients", known.clients, int)
    found = forgetting.compute(
        _directories(words, known.labels),
        round=known.round,
        clients=clients,
        seed=known.seed,
        data_dir=known.data_dir,
    )
    return found, "Forgetting in one local training"


def _of_smoothness(words: Sequence[str], known) -> Answer:
    series = sources.series(words, known.readouts, known.labels)
    found = smoothness.compute(series, known.metric, known.last, known.step)
    return found, f"Jumps of the {known.metric} from round to round"


def _of_targets(words: Sequence[str], known) -> Answer:
    wanted = _numbers("target", known.target, float)
    series = sources.series(words, known.readouts, known.labels)
    costs: dict[str, int | None] = {}
    for one in series:
        name = one.header.get("directory", one.header["label"])
        # A result that was kept without a word on its traffic still has rounds.
        if name not in costs:
            costs[name] = sources.bytes_per_round(one.header, known.data_dir) if sources.is_known(one.header) else None
    per_round = [costs[one.header.get("directory", one.header["label"])] for one in series]
    found = targets.compute(series, wanted, per_round, known.metric)
    print(targets.table(found))
    return found, f"Until the {known.metric} is first reached"


def _of_sweeps(words: Sequence[str], known) -> Answer:
    if not known.parameter:
        raise UserError("sweeps: say what the runs differ in, such as --parameter=clients_per_round.")
    series = sources.series(words, known.readouts)
    found = sweeps.compute(
        sweeps.of_runs(series, known.parameter, known.metric, known.last), known.parameter, known.metric
    )
    return found, f"{known.metric}, mean of the last {known.last} rounds"


def _of_labels(words: Sequence[str], known) -> Answer:
    clients = _numbers("clients", known.clients, int)
    runs = [word for word in words if os.path.isdir(word)]
    partitions = [word for word in words if word not in runs]
    # A path that is not there is no partition either.
    for word in partitions:
        data.PARTITIONS.check(word)
    histograms: dict[str, Any] = {}
    for label, directory in _directories(runs, known.labels if not partitions else ()).items():
        prepared = sources.prepared_run(directory, known.data_dir)
        seed = known.seed if known.seed in prepared.federations else prepared.config.seeds[0]
        counts = prepared.federations[seed].info.get("train")
        if counts is None:
            raise UserError(f"{directory}: '{prepared.dataset.name}' has no classes; label histograms need some.")
        histograms[label], dataset = counts, prepared.dataset
    if partitions:
        dataset = data.load(known.dataset, known.data_dir)
        histograms |= labels.of_partitions(dataset, partitions, known.num_clients, known.seed)
    found = labels.compute(histograms, dataset.class_names, clients or labels.CLIENTS)
    return found, f"{dataset.name}: classes that clients hold"


REQUESTS: dict[str, Callable[[Sequence[str], Any], Answer]] = {
    "plane": _of_plane,
    "line": _of_line,
    "factors": _of_factors,
    "forgetting": _of_forgetting,
    "smoothness": _of_smoothness,
    "targets": _of_targets,
    "sweeps": _of_sweeps,
    "labels": _of_labels,
}


def check(word: str, runs: Sequence[str]) -> None:
    """Raises UserError for a kind that there is not, or one without a run."""
    if word == "curves":
        raise UserError("curves have a word of their own: fedwin curves RUN ....")
    if word not in REQUESTS:
        raise UserError(f"there is no figure '{word}'.{nearest(word, REQUESTS)} Known: {', '.join(REQUESTS)}.")
    if not runs:
        raise UserError(f"say of which runs: fedwin figure {word} RUN ..., see --help.")
