"""Plots learning curves of runs and of stored results in one figure.

fedwin curves runs/fedavg runs/scaffold --readouts=model,wima50 --out=accuracy.png
fedwin curves runs/mine experiments/results/SCALE/NAME.tar.xz --metric=loss --log
fedwin curves runs/fedavg runs/scaffold --x=simulated_seconds

A run is a directory, or a packed one: a stored result, SCALE/NAME.tar.xz in experiments/results.
"""

import pathlib

from absl import flags

from fedwin.errors import UserError, escape

from .cli import picture_format, subcommand
from .figures import curves, sources, stored

ARGUMENTS = "RUN ..."


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_list("readouts", [], "Read-outs to plot: model,wima50; by default all of every run.")
    flags.DEFINE_list("labels", [], "A label per run, for the legend; by default the names of the directories.")
    flags.DEFINE_string("metric", "", "Metric: accuracy, loss, accuracy_<domain> ...; by default accuracy or r2.")
    text = "Horizontal axis: round, bytes, seconds of training and compilation, simulated_seconds (--clock)."
    flags.DEFINE_enum("x", "round", list(curves.AXES), text)
    flags.DEFINE_integer("every", 1, "Only rounds that are multiples of this.", lower_bound=1)
    flags.DEFINE_float("target", None, "Value marked by a horizontal line, such as 0.6.")
    flags.DEFINE_float("lowest", None, "Lowest value shown.")
    flags.DEFINE_float("highest", None, "Highest value shown.")
    flags.DEFINE_boolean("log", False, "Logarithmic axis of values.")
    flags.DEFINE_string("title", "", "Title of the figure.")
    flags.DEFINE_string("out", None, "File of the picture, by default curves.png; its data go beside it as JSON.")
    return {
        "curves": ["readouts", "labels", "metric", "x", "every"],
        "picture": ["target", "lowest", "highest", "log", "title", "out", *picture_format.define()],
    }


def main(argv: list[str]) -> None:
    """Draws the curves of the runs."""
    options = flags.FLAGS
    if len(argv) < 2:
        raise UserError("name the runs: fedwin curves RUN ..., directories of runs or packed runs (*.tar.xz).")
    out = picture_format.path_of(options.out, "curves", options.format)
    series = sources.series(argv[1:], options.readouts, options.labels)
    result = curves.compute(
        series,
        sources.metric_of(series, options.metric),
        x=options.x,
        every=options.every,
        target=options.target,
        limits=None if options.lowest is options.highest is None else (options.lowest, options.highest),
        log=options.log,
    )
    title = options.title or sources.describe(series)
    curves.draw(result, out, title)
    stored.write(pathlib.Path(out).with_suffix(".json"), result, title)
    print(escape(f"curves             {out}"))


if __name__ == "__main__":
    subcommand.run(main, define_flags)
