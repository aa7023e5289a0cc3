"""Draws a figure of finished runs.

fedwin figure plane RUN@100 RUN@200 RUN@300 [MODEL ...]   loss and error on the plane through the first three models
fedwin figure plane RUN@100 --clients=3,7,11              ... through one model after training on three clients
fedwin figure line RUN@300 RUN:wima50                     loss and accuracy between two models
fedwin figure factors RUN ...                             bias, locality, variance, covariance and loss over rounds
fedwin figure forgetting RUN ... [--round=100]            what clients' models forget of each other's data
fedwin figure smoothness|targets RUN ...                  jumps from round to round; rounds, MB, seconds to --target
fedwin figure sweeps RUN ... --parameter=partition.alpha  the last accuracy against what the runs differ in
fedwin figure clients RUN ... [--readouts=model,model.finetune]   accuracy of clients on their own examples
fedwin figure labels RUN|PARTITION ... [--dataset=NAME]   classes that clients hold
fedwin figure staleness RUN [--clients=3,7,11]            who trained when in an asynchronous run, from which models
fedwin figure STORED.json                                 redraws a picture from the JSON file next to it

A model is DIR, DIR@ROUND, DIR:READOUT or DIR@ROUND:READOUT.
"""

import contextlib
import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from fedwin import data, jax_config
from fedwin.callbacks.scores import plain_table, title_of
from fedwin.errors import UserError, escape
from fedwin.registry.ranges import one_of
from fedwin.runs.client_evaluations import client_table
from fedwin.runs.config import MOST
from fedwin.runs.load import client_models, prepared_run

from .cli import picture_format, subcommand, unused
from .figures import (
    clients,
    curves,
    factors,
    forgetting,
    labels,
    line,
    models,
    plane,
    smoothness,
    sources,
    staleness,
    stored,
    sweeps,
    targets,
)
from .records import config_of, read

ARGUMENTS = "KIND RUN ..."
# Title -> names of flags, for --help.
GROUPS = {
    "several kinds": ["out", "format", "title", "labels", "data_dir", "seed", "clients"],
    "models": ["round", "rounds", "replicas", "examples", "points"],
    "evaluations": ["readouts", "metric", "last", "target", "parameter"],
    "label histograms": ["dataset", "num_clients"],
}
# A quarter of a million evaluations.
MOST_POINTS = 500

Runs = Sequence[str]
# (result of `compute`, title)
Answer = tuple[dict[str, Any], str]


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_string("out", None, "File of the picture, by default <kind>.png; its data go beside it as JSON.")
    picture_format.define()
    flags.DEFINE_string("title", "", "Title of the figure.")
    flags.DEFINE_list("labels", [], "A label per run or model; by default the names of the directories.")
    flags.DEFINE_string("data_dir", None, "Folder of the data set's files, if it has moved.")
    flags.DEFINE_integer("seed", 0, "Seed of the runs, or of partitions.", lower_bound=0, upper_bound=MOST)
    flags.DEFINE_list("clients", [], "Clients that train or are shown: 3,7,11; by default the next round's or first.")
    flags.DEFINE_integer("round", None, "forgetting, clients: round to show; default: the newest.", lower_bound=0)
    flags.DEFINE_list("rounds", [], "factors: rounds of the checkpoints; by default all.")
    flags.DEFINE_integer("replicas", 2, "factors: trainings per client; n show 1 - 1/n of the variance.", lower_bound=1)
    flags.DEFINE_integer("examples", 0, "Examples to evaluate, drawn once; 0: all (factors: 2,000).", lower_bound=0)
    text = "plane, line: points along an axis; by default 21 and 41."
    flags.DEFINE_integer("points", None, text, lower_bound=2, upper_bound=MOST_POINTS)
    flags.DEFINE_list("readouts", [], "smoothness, targets, sweeps, clients: read-outs; by default all of every run.")
    text = "smoothness, targets, sweeps, clients: metric of evaluations; by default accuracy, or r2 (clients: rmse)."
    flags.DEFINE_string("metric", "", text)
    flags.DEFINE_integer("last", 100, "smoothness, sweeps: number of last rounds that count.", lower_bound=1)
    flags.DEFINE_list("target", [], "targets: values to reach, such as 0.6,0.7.")
    flags.DEFINE_string("parameter", "", "sweeps: clients_per_round, algorithm.tau, observe.window ...")
    flags.DEFINE_string("dataset", "digits", "labels: data set of the partitions.")
    flags.DEFINE_integer("num_clients", None, "labels: clients of partitions.", lower_bound=1)
    return GROUPS


def _numbers(flag: str, values: Sequence[str], kind: type = int) -> list[Any]:
    """Returns the values of a list flag as numbers."""
    with contextlib.suppress(ValueError):
        found = [kind(value) for value in values]
        if all(abs(number) < math.inf for number in found):
            return found
    wanted = "integers" if kind is int else "finite numbers"
    raise UserError(f"flag --{flag}={','.join(values)} must be {wanted}, separated by commas.")


def _directories(arguments: Runs, labels: Sequence[str]) -> dict[str, str]:
    """Returns label -> directory of a run."""
    for argument in arguments:
        if not os.path.isdir(argument):
            raise UserError(f"{argument}: there is no such run; name its directory.")
    names = sources.labels_of(arguments, labels, [pathlib.Path(argument).resolve().name for argument in arguments])
    return dict(zip(names, arguments))


def _plane(arguments: Runs, options: Any) -> Answer:
    ids = _numbers("clients", options.clients)
    if ids and (len(arguments) != 1 or len(ids) != 3):
        raise UserError("plane: with --clients name one model and three clients, --clients=3,7,11.")
    if not ids and len(arguments) < 3:
        raise UserError(f"plane: {len(arguments)} model(s); name three, or one and --clients=3,7,11.")
    if ids:
        unused.refuse(["labels"], "with --clients")
    trained, named = models.named(arguments, options.seed, options.data_dir, options.labels)
    if ids:
        corners = dict(zip((f"client {client}" for client in ids), client_models(trained, ids)))
        # Some methods evaluate another model than clients receive, and an address may name a read-out.
        further = {"received model": trained.received}
        further |= {} if models.address(arguments[0]).readout == "model" else named
        subject = f"clients {', '.join(map(str, ids))} after round {trained.round}"
    else:
        items = list(named.items())
        corners, further, subject = dict(items[:3]), dict(items[3:]), "three models"
    points = options.points or plane.POINTS
    result = plane.compute(trained, corners, further, points=points, count=options.examples)
    return result, f"{trained.prepared.dataset.name}: the plane through {subject}"


def _line(arguments: Runs, options: Any) -> Answer:
    trained, named = models.named(arguments, options.seed, options.data_dir, options.labels)
    result = line.compute(trained, named, points=options.points or line.POINTS, count=options.examples)
    return result, f"{trained.prepared.dataset.name}: from {' to '.join(named)}"


def _factors(arguments: Runs, options: Any) -> Answer:
    result = factors.compute(
        _directories(arguments, options.labels),
        rounds=_numbers("rounds", options.rounds),
        clients=_numbers("clients", options.clients),
        seed=options.seed,
        replicas=options.replicas,
        count=options.examples or factors.EXAMPLES,
        data_dir=options.data_dir,
    )
    return result, "Five factors of the global model's loss"


def _forgetting(arguments: Runs, options: Any) -> Answer:
    ids = _numbers("clients", options.clients)
    runs = _directories(arguments, options.labels)
    result = forgetting.compute(runs, round=options.round, clients=ids, seed=options.seed, data_dir=options.data_dir)
    return result, "Forgetting in one local training"


def _smoothness(arguments: Runs, options: Any) -> Answer:
    series = sources.series(arguments, options.readouts, options.labels)
    result = smoothness.compute(series, sources.metric_of(series, options.metric), options.last)
    return result, f"Jumps of the {title_of(result['metric'])} from round to round"


def _targets(arguments: Runs, options: Any) -> Answer:
    wanted = _numbers("target", options.target, float)
    series = sources.series(arguments, options.readouts, options.labels)
    result = targets.compute(series, wanted, sources.metric_of(series, options.metric))
    print(plain_table(targets.rows(result)))
    return result, f"Until the {title_of(result['metric'])} is first reached"


def _sweeps(arguments: Runs, options: Any) -> Answer:
    if not options.parameter:
        raise UserError("sweeps: name the parameter in which the runs differ, such as --parameter=clients_per_round.")
    series = sources.series(arguments, options.readouts)
    metric = sources.metric_of(series, options.metric)
    points = sweeps.of_runs(series, options.parameter, metric, options.last)
    title = f"{title_of(metric)}, mean over {curves.last_in_words(series, metric, options.last)}"
    return sweeps.compute(points, options.parameter, metric), title


def _labels(arguments: Runs, options: Any) -> Answer:
    ids = _numbers("clients", options.clients)
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
    datasets: dict[str, data.Dataset] = {}
    for label, directory in _directories(runs, options.labels if not partitions else ()).items():
        seeds = config_of(directory)["seeds"]
        seed = options.seed if options.seed in seeds or flags.FLAGS["seed"].present else seeds[0]
        prepared = prepared_run(directory, [seed], data_dir=options.data_dir)
        counts = prepared.federations[seed].info.get("train")
        if counts is None:
            raise UserError(f"{directory}: '{prepared.dataset.name}' has no classes; label histograms need some.")
        histograms[label] = counts
        datasets[prepared.dataset.name] = prepared.dataset
    if partitions:
        dataset = data.load(options.dataset, options.data_dir)
        histograms |= labels.of_partitions(dataset, partitions, options.num_clients, options.seed)
        datasets[dataset.name] = dataset
    if len(datasets) > 1:
        raise UserError(f"labels: the data sets are {', '.join(datasets)}; draw a picture of each.")
    (dataset,) = datasets.values()
    result = labels.compute(histograms, dataset.class_names, ids)
    return result, f"{dataset.name}: classes that clients hold"


def _clients(arguments: Runs, options: Any) -> Answer:
    directories = _directories(arguments, options.labels)
    tables = {label: client_table(path, options.seed, options.round) for label, path in directories.items()}
    metric = options.metric or ("accuracy" if any("accuracy" in c for t in tables.values() for c in t) else "rmse")
    result = clients.compute(tables, metric, options.readouts)
    after = "" if options.round is None else f" after round {options.round}"
    return result, f"{title_of(metric)} of clients on their own examples{after}, seed {options.seed}"


def _staleness(arguments: Runs, options: Any) -> Answer:
    if len(arguments) != 1:
        raise UserError(f"staleness: {len(arguments)} runs; name one.")
    (directory,) = _directories(arguments, ()).values()
    trained = max((line["round"] for line in read(directory).lines if line["seed"] == options.seed), default=0)
    if not trained:
        raise UserError(f"seed={options.seed}: {directory} has no evaluation of this seed after a round.")
    prepared = prepared_run(directory, data_dir=options.data_dir)
    config, ids = prepared.config, _numbers("clients", options.clients)
    result = staleness.compute(prepared.setting.sampling, options.seed, trained, ids)
    return result, f"{config.algorithm}, {config.asynchronous}, {config.clock}"


_OF_MODELS = ("labels", "data_dir", "seed", "examples", "points")
_OF_EVALUATIONS = ("labels", "readouts", "metric")
# Kind of figure -> (function of its runs and flags, its flags besides --out and --title).
KINDS: dict[str, tuple[Callable[[Runs, Any], Answer], tuple[str, ...]]] = {
    "plane": (_plane, (*_OF_MODELS, "clients")),
    "line": (_line, _OF_MODELS),
    "factors": (_factors, ("labels", "data_dir", "seed", "clients", "rounds", "replicas", "examples")),
    "forgetting": (_forgetting, ("labels", "data_dir", "seed", "clients", "round")),
    "smoothness": (_smoothness, (*_OF_EVALUATIONS, "last")),
    "targets": (_targets, (*_OF_EVALUATIONS, "target")),
    "sweeps": (_sweeps, ("readouts", "metric", "last", "parameter")),
    "labels": (_labels, ("labels", "data_dir", "seed", "clients", "dataset", "num_clients")),
    "staleness": (_staleness, ("data_dir", "seed", "clients")),
    "clients": (_clients, (*_OF_EVALUATIONS, "seed", "round")),
}


def main(argv: list[str]) -> None:
    """Computes and draws one figure."""
    options = flags.FLAGS
    if len(argv) < 2:
        raise UserError(f"name a figure: fedwin figure {'|'.join(KINDS)} RUN ..., see --help.")
    kind, *runs = argv[1:]
    redrawn = kind.endswith(".json") and not runs
    if redrawn:
        unused.refuse_others(("out", "format", "title"), GROUPS, "on a stored figure")
    elif kind == "curves":
        raise UserError("curves are drawn by another subcommand: fedwin curves RUN ....")
    else:
        one_of("KIND", kind, KINDS)
        if not runs:
            raise UserError(f"name the runs: fedwin figure {kind} RUN ..., see --help.")
        unused.refuse_others(("out", "format", "title", *KINDS[kind][1]), GROUPS, f"on a figure of kind {kind}")
    out = picture_format.path_of(options.out, pathlib.Path(kind).stem, options.format, not redrawn)
    if redrawn:
        stored.redraw(kind, out, options.title)
    else:
        jax_config.use_every_core()
        result, default_title = KINDS[kind][0](runs, options)
        title = options.title or default_title
        stored.KINDS[kind].draw(result, out, title)
        stored.write(pathlib.Path(out).with_suffix(".json"), result, title)
    print(escape(f"picture            {out}"))


if __name__ == "__main__":
    subcommand.run(main, define_flags)
