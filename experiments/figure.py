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
fedwin figure STORED.json                                 redraws a picture from the JSON file next to it

A model is DIR, DIR@ROUND, DIR:READOUT or DIR@ROUND:READOUT.
"""

import pathlib

from absl import flags

from fedwin.engine import devices
from fedwin.errors import UserError
from fedwin.runs.config import MOST

from .cli import picture_format, subcommand, unused
from .figures import requests, stored, style

ARGUMENTS = "KIND RUN ..."
# Title -> names of flags, for --help.
GROUPS = {
    "every kind": ["out", "format", "title", "labels", "data_dir", "seed", "clients"],
    "models": ["round", "rounds", "replicas", "examples", "points", "recompute", "chunk"],
    "evaluations": ["readouts", "metric", "last", "step", "target", "parameter"],
    "label histograms": ["dataset", "num_clients"],
}
# A quarter of a million evaluations.
MOST_POINTS = 500


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_string(
        "out", None, "File of the picture, by default <kind>.png; its data are written next to it as JSON."
    )
    picture_format.define()
    flags.DEFINE_string("title", "", "Title of the figure.")
    flags.DEFINE_list("labels", [], "A label per run or model; by default the names of the directories.")
    flags.DEFINE_string("data_dir", None, "Folder of the data set's files, if it has moved.")
    flags.DEFINE_integer("seed", 0, "Seed of the runs, or of partitions.", lower_bound=0, upper_bound=MOST)
    flags.DEFINE_list("clients", [], "Clients that train or are shown: 3,7,11; by default those of the next round.")
    flags.DEFINE_integer(
        "round",
        None,
        "forgetting, clients: round of the checkpoint or evaluation; by default the newest.",
        lower_bound=0,
    )
    flags.DEFINE_list("rounds", [], "factors: rounds of the checkpoints; by default all.")
    flags.DEFINE_integer("replicas", 2, "factors: how often every client trains.", lower_bound=1)
    flags.DEFINE_integer("examples", 0, "Evaluate on so many examples, drawn once; 0: all.", lower_bound=0)
    flags.DEFINE_integer(
        "points", 0, "plane, line: points along an axis; 0: 21 and 41.", lower_bound=0, upper_bound=MOST_POINTS
    )
    flags.DEFINE_integer("recompute", 0, "plane, line: training examples for BatchNorm's statistics.", lower_bound=0)
    flags.DEFINE_integer("chunk", 0, "plane, line: points per batch; 0: automatic.", lower_bound=0)
    flags.DEFINE_list("readouts", [], "smoothness, targets, sweeps, clients: read-outs; by default all of every run.")
    flags.DEFINE_string("metric", "accuracy", "smoothness, targets, sweeps, clients: metric of the evaluations.")
    flags.DEFINE_integer("last", 100, "smoothness, sweeps: number of last rounds that count.", lower_bound=1)
    flags.DEFINE_integer("step", 1, "smoothness: rounds between two compared evaluations.", lower_bound=1)
    flags.DEFINE_list("target", [], "targets: values to reach, such as 0.6,0.7.")
    flags.DEFINE_string("parameter", "", "sweeps: clients_per_round, partition.alpha, algorithm.tau ...")
    flags.DEFINE_string("dataset", "digits", "labels: data set of the partitions.")
    flags.DEFINE_integer("num_clients", None, "labels: clients of partitions.", lower_bound=1)
    return GROUPS


def main(argv: list[str]) -> None:
    """Computes and draws one figure."""
    options = flags.FLAGS
    if len(argv) < 2:
        raise UserError(f"name a figure: fedwin figure {'|'.join(requests.REQUESTS)} RUN ..., see --help.")
    kind, *runs = argv[1:]
    redrawn = kind.endswith(".json") and not runs
    if redrawn:
        unused.refuse_others(("out", "format", "title"), GROUPS, "on a stored figure")
    else:
        requests.check(kind, runs)
        unused.refuse_others(("out", "format", "title", *requests.FLAGS[kind]), GROUPS, f"on a figure of kind {kind}")
    usual = pathlib.Path(kind).stem
    out = style.path_of(usual if options.out is None else options.out, f"{usual}.png", options.format)
    if redrawn:
        stored.redraw(kind, out, options.title)
    else:
        devices.use_every_core()
        result, default_title = requests.REQUESTS[kind](runs, options)
        title = options.title or default_title
        stored.module_of(kind).draw(result, out, title)
        stored.write(pathlib.Path(out).with_suffix(".json"), result, title)
    print(f"picture            {out}")


if __name__ == "__main__":
    subcommand.run(main, define_flags)
