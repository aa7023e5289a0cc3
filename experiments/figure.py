"""Draws a figure of finished runs.

fedwin figure plane RUN@100 RUN@200 RUN@300 [MODEL ...]   loss and error on the plane through the first three models
fedwin figure plane RUN@100 --clients=3,7,11              ... through what three clients make of one model
fedwin figure line RUN@300 RUN:wima50                     loss and accuracy between two models
fedwin figure factors RUN ...                             bias, locality, variance, covariance and loss over rounds
fedwin figure forgetting RUN ... [--round=100]            what clients' models forget of each other's data
fedwin figure smoothness|targets RUN ...                  jumps from round to round; rounds and MB to --target=0.6,0.7
fedwin figure sweeps RUN ... --parameter=partition.alpha  the last accuracy against what the runs differ in
fedwin figure labels RUN|PARTITION ... [--dataset=NAME]   classes that clients hold
fedwin figure KEPT.json                                   again what was kept beside a picture, without any run

A model is DIR, DIR@ROUND, DIR:READOUT or DIR@ROUND:READOUT.
"""

import pathlib

from absl import flags

from fedwin.engine import devices
from fedwin.errors import UserError
from fedwin.runs.config import MOST

from . import binary
from .figures import kept, orders, style

TAKES_WORDS = True
# A quarter of a million evaluations.
MOST_POINTS = 500


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; importing this file from a test or another binary defines none."""
    flags.DEFINE_string("out", None, "Where the picture goes, by default <kind>.png; its numbers go beside it as JSON.")
    flags.DEFINE_string("title", "", "The line above the picture.")
    flags.DEFINE_list("labels", [], "A name per run or model; by default from their directories.")
    flags.DEFINE_string("data_dir", None, "Folder of the data set's files, if they have moved.")
    flags.DEFINE_integer("seed", 0, "Whose checkpoints, or the seed of partitions.", lower_bound=0, upper_bound=MOST)
    flags.DEFINE_list("clients", [], "Which clients train or are shown: 3,7,11; by default those of the next round.")
    flags.DEFINE_integer("round", None, "forgetting: of which checkpoint; by default the newest.", lower_bound=0)
    flags.DEFINE_list("rounds", [], "factors: of which checkpoints; by default all.")
    flags.DEFINE_integer("replicas", 2, "factors: how often every client trains.", lower_bound=1)
    flags.DEFINE_integer("examples", 0, "Evaluate on so many examples, one fixed draw; 0: all.", lower_bound=0)
    flags.DEFINE_integer(
        "points", 0, "plane, line: points along an axis; 0: 21 and 41.", lower_bound=0, upper_bound=MOST_POINTS
    )
    flags.DEFINE_integer("recompute", 0, "plane, line: training examples for BatchNorm's statistics.", lower_bound=0)
    flags.DEFINE_integer("chunk", 0, "plane, line: points side by side; 0: as the device likes it.", lower_bound=0)
    flags.DEFINE_list("readouts", [], "smoothness, targets, sweeps: which models; by default all of every run.")
    flags.DEFINE_string("metric", "accuracy", "smoothness, targets, sweeps: which number.")
    flags.DEFINE_integer("last", 100, "smoothness, sweeps: over so many last rounds.", lower_bound=1)
    flags.DEFINE_integer("step", 1, "smoothness: rounds between two evaluations that are compared.", lower_bound=1)
    flags.DEFINE_list("target", [], "targets: values to be reached, such as 0.6,0.7.")
    flags.DEFINE_string("parameter", "", "sweeps: clients_per_round, partition.alpha, algorithm.tau ...")
    flags.DEFINE_string("dataset", "digits", "labels: what partitions deal.")
    flags.DEFINE_integer("num_clients", None, "labels: clients of partitions.", lower_bound=1)
    return {
        "every kind": ["out", "title", "labels", "data_dir", "seed", "clients"],
        "models": ["round", "rounds", "replicas", "examples", "points", "recompute", "chunk"],
        "evaluations": ["readouts", "metric", "last", "step", "target", "parameter"],
        "label histograms": ["dataset", "num_clients"],
    }


def main(argv: list[str]) -> None:
    """Computes and draws one figure."""
    known = flags.FLAGS
    if len(argv) < 2:
        raise UserError(f"say which figure: fedwin figure {'|'.join(orders.ORDERS)} RUN ..., see --help.")
    word, *runs = argv[1:]
    redrawn = word.endswith(".json") and not runs
    if not redrawn:
        orders.check(word, runs)
    usual = f"{pathlib.Path(word).stem}.png"
    out = style.path_of(usual if known.out is None else known.out, usual)
    if redrawn:
        kept.redraw(word, out)
    else:
        devices.use_every_core()
        found, told = orders.ORDERS[word](runs, known)
        title = known.title or told
        kept.kind_of(word).draw(found, out, title)
        kept.keep(pathlib.Path(out).with_suffix(".json"), found, title)
    print(f"picture            {out}")


if __name__ == "__main__":
    binary.run(main, define_flags, words=TAKES_WORDS)
