"""Lays curves of runs, and of results that were kept, over each other.

fedwin curves runs/fedavg runs/scaffold --readouts=model,wima50 --out=accuracy.png
fedwin curves runs/mine experiments/results/NAME.jsonl.gz --metric=loss --log

A run is a directory, or a kept result: compressed JSON lines, a header and then lines as in metrics.jsonl.
"""

import pathlib

from absl import flags

from fedwin.errors import UserError

from . import binary
from .figures import curves, kept, sources, style

TAKES_WORDS = True


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; importing this file from a test or another binary defines none."""
    flags.DEFINE_list("readouts", [], "Which models' curves: model,wima50; by default all of every run.")
    flags.DEFINE_list("labels", [], "A name per run, for the legend; by default those of the directories.")
    flags.DEFINE_string("metric", "accuracy", "Number that is drawn: accuracy, loss, accuracy_<domain> ...")
    flags.DEFINE_integer("every", 1, "Only rounds that are multiples of this.", lower_bound=1)
    flags.DEFINE_float("target", None, "A value that gets a horizontal line, such as 0.6.")
    flags.DEFINE_integer(
        "start", None, "A round that gets a vertical line, such as that from which a wrapper averages."
    )
    flags.DEFINE_float("lowest", None, "Lowest value shown.")
    flags.DEFINE_float("highest", None, "Highest value shown.")
    flags.DEFINE_boolean("log", False, "Draw values on a logarithmic axis.")
    flags.DEFINE_string("title", "", "The line above the picture.")
    flags.DEFINE_string("out", "curves.png", "Where the picture goes; what it shows goes beside it as JSON.")
    return {
        "what is drawn": ["readouts", "labels", "metric", "every"],
        "how": ["target", "start", "lowest", "highest", "log", "title", "out"],
    }


def main(argv: list[str]) -> None:
    """Draws the curves of the runs that are named."""
    known = flags.FLAGS
    if len(argv) < 2:
        raise UserError("say whose curves: fedwin curves RUN ..., directories of runs or kept results (*.jsonl.gz).")
    out = style.path_of(known.out, "curves.png")
    series = sources.series(argv[1:], known.readouts, known.labels)
    found = curves.compute(
        series,
        known.metric,
        every=known.every,
        target=known.target,
        start=known.start,
        limits=None if known.lowest is known.highest is None else (known.lowest, known.highest),
        log=known.log,
    )
    title = known.title or sources.told(series)
    curves.draw(found, out, title)
    kept.keep(pathlib.Path(out).with_suffix(".json"), found, title)
    print(f"curves             {out}")


if __name__ == "__main__":
    binary.run(main, define_flags, words=TAKES_WORDS)
