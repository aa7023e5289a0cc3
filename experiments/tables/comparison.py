"""Comparison of methods: intervals over seeds, paired differences, and the files comparison.csv, .md and .png."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedwin.analysis import Interval, mean_interval, paired_interval
from fedwin.callbacks import scores
from fedwin.callbacks.scores import Summaries, Summary
from fedwin.runs.config import Config, DataOptions
from fedwin.runs.metrics_log import read_lines

from ..cli import command_line
from ..figures import style
from ..records import MODEL, megabytes
from . import formats

# Methods that agree in these fields see the same clients, examples and test set: their seeds form pairs.
SAME_DATA = (*DataOptions.__dataclass_fields__, "eval_examples")
# Columns that are shown on the terminal.
SHOWN = 7
FEW_SEEDS = f"Fewer than {formats.MIN_SEEDS} seeds have no interval; --seeds=0,1,2 gives three."
INCHES_PER_METHOD = 0.42
# The read-outs of a method are spread over this share of its row.
SPREAD = 0.56


class ComparisonRow(NamedTuple):
    """One read-out of one method.

    Attributes:
      metric: accuracy, or r2 for continuous labels.
      score: interval of the metric.
      difference: interval of the paired differences from the plain model of `reference`; None for that model itself.
      reference: the first method on the same data.
      megabytes: megabytes sent in all rounds of a seed.
    """

    method: str
    readout: str
    metric: str
    score: Interval
    difference: Interval | None
    reference: str
    summary: Summary
    config: Config
    megabytes: float | None

    @property
    def final(self) -> float | None:
        """The metric at the last evaluation as it is shown, the mean over seeds."""
        return self.shown(scores.final(self.summary, self.readout, self.metric))

    def shown(self, value: float | None) -> float | None:
        """Returns a value of the metric as it is shown, an accuracy in percent."""
        return None if value is None else scores.scale_of(self.metric)[0] * value

    @property
    def loss(self) -> float | None:
        """Mean over seeds."""
        return scores.mean_of(by_seed(self.summary, self.readout, "loss").values())


def references(configs: Mapping[str, Config]) -> dict[str, str]:
    """Returns method -> the first method with the same data, to which its differences are taken."""
    first: dict[tuple, str] = {}
    return {
        method: first.setdefault(tuple(getattr(config, name) for name in SAME_DATA), method)
        for method, config in configs.items()
    }


def by_seed(summary: Summary, readout: str, metric: str) -> dict[int, float | None]:
    """Returns seed -> mean of a metric over the last rounds; None for a seed that diverged or has no such metric.

    A seed that was stopped early may have no figures of clients: it may have ended between their evaluations.
    """
    return {
        seed: None if metric not in (means := (entry["last"] or {}).get(readout, {})) else float(means[metric])
        for seed, entry in summary["seeds"].items()
    }


def megabytes_of(config: Config, summary: Summary) -> float | None:
    """Returns the mean traffic in MB of the seeds that did not diverge; raises UserError for altered evaluations."""
    sent = megabytes(read_lines(os.path.join(config.out_dir, "metrics.jsonl")))
    return scores.mean_of(sent.get(seed, 0.0) for seed, entry in summary["seeds"].items() if entry["last"] is not None)


def rows_of(summaries: Summaries, configs: Mapping[str, Config]) -> list[ComparisonRow]:
    """Returns the rows of finished runs."""
    rows, first, metric = [], references(configs), scores.main_metric_of(summaries)
    for method, summary in summaries.items():
        reference = by_seed(summaries[first[method]], MODEL, metric)
        sent = megabytes_of(configs[method], summary)
        for readout in summary["over_seeds"]:
            score = by_seed(summary, readout, metric)
            is_reference = (method, readout) == (first[method], MODEL)
            difference = None if is_reference else paired_interval(score, reference)
            shared = (difference, first[method], summary, configs[method], sent)
            rows.append(ComparisonRow(method, readout, metric, mean_interval(score), *shared))
    return rows


def write(
    folder: pathlib.Path, summaries: Summaries, configs: Mapping[str, Config], form: str = "png"
) -> list[ComparisonRow]:
    """Writes comparison.csv, comparison.md and comparison.png; returns the rows."""
    rows = rows_of(summaries, configs)
    remarks = notes(rows, summaries)
    formats.write_runs(folder / "comparison.csv", [_csv_row(row) for row in rows])
    table = formats.markdown_table(_head(rows), [_cells(row) for row in rows])
    formats.write_markdown(folder / "comparison.md", "Comparison of methods", [table, *remarks])
    draw_picture(rows, folder / f"comparison.{form}")
    return rows


def _csv_row(row: ComparisonRow) -> dict[str, Any]:
    interval = row.difference or Interval(None, None, 0, 0)
    low, high = formats.shown(interval).bounds or (None, None)
    name, points = ("accuracy_percent", "_points") if scores.is_share(row.metric) else (row.metric, "")
    difference = {
        f"difference{points}": row.shown(interval.mean),
        "difference_low_95": row.shown(low),
        "difference_high_95": row.shown(high),
        "compared_with": row.reference,
        "pairs": interval.seeds,
        "of_pairs": interval.of_seeds,
    }
    return {
        "method": row.method,
        "readout": row.readout,
        name: row.shown(row.score.mean),
        "half_width_95": row.shown(formats.shown(row.score).half_width),
        f"final_{name}": row.final,
        **(difference if row.difference else dict.fromkeys(difference)),
        "seeds": row.score.seeds,
        "of_seeds": row.score.of_seeds,
        "megabytes_sent": row.megabytes,
        "loss": row.loss,
        "rounds_per_second": scores.rounds_per_second(row.summary),
        "simulated_seconds": scores.mean_of(s.get("simulated_seconds") for s in row.summary["seeds"].values()),
        "last_rounds": row.summary["last_rounds"],
        "of_rounds": row.summary["num_rounds"],
        "evaluations": scores.evaluations(row.summary),
        "command": command_line.train_command(row.config),
        "fingerprint": row.summary["fingerprint"],
    }


def _difference(row: ComparisonRow) -> tuple[str, str]:
    """Returns the cells 'difference' and '95 % interval'."""
    if row.difference is None:
        return "reference", scores.NOTHING
    if row.difference.mean is None:
        return "no pair", scores.NOTHING
    own, seeds = row.difference.seeds, row.score.of_seeds
    pairs = "" if own == seeds else f" ({own} of {seeds} pairs)"
    factor, digits = scores.scale_of(row.metric)
    return f"{factor * row.difference.mean:+.{digits}f}{pairs}", formats.interval_bounds(row.difference, factor, digits)


def _has_intervals(rows: Sequence[ComparisonRow]) -> bool:
    return formats.has_intervals(row.score for row in rows)


def _head(rows: Sequence[ComparisonRow]) -> list[str]:
    """Returns the names of the columns; that of accuracies names its interval."""
    plus = f" +- {formats.CI}" if _has_intervals(rows) else ""
    unit, points = (" (%)", " (points)") if scores.is_share(rows[0].metric) else ("", "")
    numbers = [f"{scores.title_of(rows[0].metric)}{unit}{plus}", f"final{unit}", f"difference{points}", formats.CI]
    return ["method", "read-out", *numbers, "seeds", "MB sent", "test loss", "rounds/s", "command", "fingerprint"]


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    return (
        row.method,
        row.readout,
        formats.mean_and_half_width(row.score, *scores.scale_of(row.metric)),
        scores.number(row.final, scores.scale_of(row.metric)[1]),
        *_difference(row),
        f"{row.score.seeds} of {row.score.of_seeds}",
        scores.number(row.megabytes, 1),
        scores.number(row.loss, 4),
        scores.number(scores.rounds_per_second(row.summary), 1),
        f"`{command_line.train_command(row.config)}`",
        f"`{row.summary['fingerprint']}`",
    )


def notes(rows: Sequence[ComparisonRow], summaries: Summaries) -> list[str]:
    """Returns the remarks below the table, which explain its numbers."""
    first, *others = dict.fromkeys(row.reference for row in rows)
    several = _has_intervals(rows)
    interval = f", +- {formats.HALF_WIDTH}" if several else ""
    elsewhere = f" (methods on other data: to the first on the same, {', '.join(f'`{name}`' for name in others)})"
    points = ", in percentage points" if scores.is_share(rows[0].metric) else ""
    remarks = [
        f"{scores.title_of(rows[0].metric).capitalize()} is the mean over {scores.averaged_rounds(summaries)} and over "
        f"seeds{interval}; final: the last evaluation. Differences are taken seed by seed{points}, to the plain model "
        f"of `{first}`{elsewhere if others else ''}. MB are sent in all rounds of a seed, to clients and back."
    ]
    if not several:
        remarks.append(FEW_SEEDS)
    if any(row.score.seeds < row.score.of_seeds for row in rows):
        remarks.append("Seeds that diverged count in no mean, difference or interval.")
    if stopped := scores.stop_notes(summaries):
        remarks.append("; ".join(stopped) + ".")
    return remarks


def text(rows: Sequence[ComparisonRow], summaries: Summaries) -> str:
    """Returns the table for the terminal."""
    interval = f", +- {formats.HALF_WIDTH}" if _has_intervals(rows) else ""
    heading = f"mean over {scores.averaged_rounds(summaries)}{interval};"
    heading += "\npaired differences from the plain model of the reference; final: the last evaluation"
    return f"{heading}\n{scores.plain_table([_head(rows)[:SHOWN], *(_cells(row)[:SHOWN] for row in rows)])}"


def draw_picture(rows: Sequence[ComparisonRow], path: pathlib.Path) -> None:
    """Draws accuracies and paired differences with their intervals, a row of the picture per method."""
    methods = list(dict.fromkeys(row.method for row in rows))
    readouts = list(dict.fromkeys(row.readout for row in rows))
    size = (11, 2.2 + max(INCHES_PER_METHOD, 0.2 * len(readouts)) * max(len(methods), 3))
    figure, (left, right) = style.subplots(1, 2, figsize=size, sharey=True)
    colors = dict(zip(methods, style.row_colors(methods), strict=True))
    for row in sorted(rows, key=lambda row: readouts.index(row.readout)):
        number = readouts.index(row.readout)
        height = methods.index(row.method) + SPREAD * ((number + 0.5) / len(readouts) - 0.5)
        own = style.variant_look(number, len(readouts)) | {"color": colors[row.method]}
        _draw_interval(left, height, row.score, row.shown, own, "diverged")
        if row.difference is not None:
            _draw_interval(right, height, row.difference, row.shown, own, "no pair")
    left.set_yticks(range(len(methods)), style.short(methods))
    left.set(xlabel=style.axis_of(metric := rows[0].metric), ylabel="method", ylim=(len(methods) - 0.4, -0.6))
    right.axvline(0, color="0.4", linewidth=0.8, linestyle="--")
    several = len({row.reference for row in rows}) > 1
    reference = "the first method on the same data" if several else style.short(methods)[0]
    points = " (percentage points)" if scores.is_share(metric) else ""
    right.set(xlabel=f"paired difference{points}\nto the model of {reference}")
    if points:
        style.within_percent(left, "x")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.set_axisbelow(True)
    seeds = max(row.score.of_seeds for row in rows)
    bars = "bars: 95 % interval (Student's t)" if _has_intervals(rows) else "too few for an interval"
    title = f"{scores.title_of(metric).capitalize()} and paired differences; {seeds} seed{'s' * (seeds > 1)}, {bars}"
    figure.suptitle(title, fontsize="medium")
    if len(readouts) > 1:
        look: dict[str, Any] = dict(title="read-out", ncols=min(len(readouts), 6), frameon=False)
        figure.legend(style.variant_handles(readouts), readouts, loc="outside lower center", **look)
    style.save(figure, path)


def _draw_interval(axis, height: float, interval: Interval, shown, look: dict[str, Any], missing: str) -> None:
    """Draws a mean as a point and its interval, if any, as a bar; `missing` stands where there is no mean."""
    if interval.mean is None:
        where = dict(xycoords=("axes fraction", "data"), va="center", fontsize=8, color=look["color"])
        axis.annotate(missing, (0.02, height), **where)
        return
    half = shown(formats.shown(interval).half_width)
    axis.errorbar(shown(interval.mean), height, xerr=half, markersize=5, capsize=2.5, linewidth=1.4, **look)
