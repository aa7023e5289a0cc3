"""The files of a sweep: CSV, Markdown and a picture, grid and winner in each."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedwin.runs.config import Config

from . import commands, config_flags, grid, scores, sweep_picture, sweeping, table_files
from .comparison_rows import PLAIN
from .text import columns

# Shown beside what decides, where a run has them.
METRICS = ("accuracy", "loss", "val_accuracy", "val_loss")


class Sweep(NamedTuple):
    """A grid that has been run.

    Attributes:
      axes: field -> values.
      configs: label -> what was run.
      summaries: label -> what came out.
      select: the metric that decides.
      readout: the read-out that decides.
    """

    axes: grid.Axes
    configs: Mapping[str, Config]
    summaries: Mapping[str, dict[str, Any]]
    select: str
    readout: str = PLAIN

    @property
    def ranked(self) -> list[str]:
        """Labels from best to worst; runs that diverged are not among them."""
        return sweeping.ranking(self.summaries, self.select, self.readout)

    @property
    def scale(self) -> sweep_picture.Scale:
        """How the number that decides is written."""
        examples = "held-out" if self.select.startswith("val_") else "test"
        whose = "" if self.readout == PLAIN else f" of {self.readout}"
        kind = self.select.removeprefix("val_").replace("_", " ")
        if self.select.endswith(sweeping.SMALLER):
            return sweep_picture.Scale(f"{examples} {kind}{whose} (nats)", 1, 4, True)
        return sweep_picture.Scale(f"{examples} {kind}{whose} (%)", sweep_picture.PERCENT, 2, False)


def winner(sweep: Sweep) -> list[str]:
    """Returns lines that name the winner and its command."""
    if not sweep.ranked:
        return ["Every run diverged: there is no winner."]
    label, scale = sweep.ranked[0], sweep.scale
    found = sweeping.score(sweep.summaries[label], sweep.select, sweep.readout)
    sort = "lowest" if scale.smaller else "highest"
    number = table_files.with_half_width(found, scale.factor, scale.digits)
    return [
        f"best of {len(sweep.configs)} by {sort} {scale.name}: {label}: {number}",
        commands.command(sweep.configs[label]),
    ]


def _metrics(sweep: Sweep) -> list[str]:
    """Returns the metrics that every run has, those of METRICS, that which decides first."""
    common = set.intersection(*(set(s["over_seeds"].get(sweep.readout, {})) for s in sweep.summaries.values()))
    return [sweep.select, *(name for name in METRICS if name in common and name != sweep.select)]


def write(folder: pathlib.Path, sweep: Sweep) -> None:
    """Writes sweep.csv, sweep.md and sweep.png to a folder that is there."""
    found = {label: sweeping.score(summary, sweep.select, sweep.readout) for label, summary in sweep.summaries.items()}
    _write_csv(folder / "sweep.csv", sweep)
    _write_markdown(folder / "sweep.md", sweep)
    sweep_picture.draw(sweep.axes, found, sweep.ranked, sweep.scale, folder / "sweep.png")


def _write_csv(path: pathlib.Path, sweep: Sweep) -> None:
    ranks = {label: number + 1 for number, label in enumerate(sweep.ranked)}
    metrics, flags = _metrics(sweep), [config_flags.flag_of(field) for field in sweep.axes]
    head = [
        "rank",
        "winner",
        *flags,
        "readout",
        *(f"{name}{end}" for name in metrics for end in ("", "_half_width_95")),
    ]
    head += ["seeds", "of_seeds", "megabytes_sent", "rounds_per_second", "command", "fingerprint"]
    rows = []
    for point in grid.points(sweep.axes):
        label = grid.label(point)
        summary, config = sweep.summaries[label], sweep.configs[label]
        found = [sweeping.score(summary, name, sweep.readout) for name in metrics]
        rows.append(
            [
                ranks.get(label),
                int(ranks.get(label) == 1),
                *(grid.shown(value) for value in point.values()),
                sweep.readout,
                *(number for interval in found for number in (interval.mean, interval.half_width)),
                found[0].seeds,
                found[0].of_seeds,
                scores.megabytes_of(config, summary),
                scores.pace(summary),
                commands.command(config),
                summary["fingerprint"],
            ]
        )
    table_files.write_csv(path, head, rows)


def _cells(sweep: Sweep, label: str) -> list[str]:
    """Returns the metrics of a run, then its seeds."""
    found = {name: sweeping.score(sweep.summaries[label], name, sweep.readout) for name in _metrics(sweep)}
    text = [
        table_files.with_half_width(interval, *((1, 4) if name.endswith("loss") else (100, 2)))
        for name, interval in found.items()
    ]
    return [*text, table_files.counted(found[sweep.select])]


def _head(sweep: Sweep) -> list[str]:
    named = [name.replace("_", " ") + ("" if name.endswith("loss") else " (%)") for name in _metrics(sweep)]
    return [*map(config_flags.flag_of, sweep.axes), *named, "seeds"]


def _in_order(sweep: Sweep) -> list[str]:
    """Returns all labels, the best first and those that diverged last."""
    return [*sweep.ranked, *(label for label in sweep.configs if label not in sweep.ranked)]


def _values(sweep: Sweep) -> dict[str, list[str]]:
    """Returns label -> the values of its point."""
    return {grid.label(point): [grid.shown(value) for value in point.values()] for point in grid.points(sweep.axes)}


def text(sweep: Sweep) -> str:
    """Returns the table for the terminal, the best run first."""
    values = _values(sweep)
    return columns([_head(sweep), *([*values[label], *_cells(sweep, label)] for label in _in_order(sweep))])


def _write_markdown(path: pathlib.Path, sweep: Sweep) -> None:
    values = _values(sweep)
    rows = []
    for label in _in_order(sweep):
        summary, config = sweep.summaries[label], sweep.configs[label]
        sent, pace = scores.megabytes_of(config, summary), scores.pace(summary)
        more = [table_files.number(sent, 1), table_files.number(pace, 1)]
        rows.append(
            [
                *values[label],
                *_cells(sweep, label),
                *more,
                f"`{commands.command(config)}`",
                f"`{summary['fingerprint']}`",
            ]
        )
    said = winner(sweep)
    best = [f"**{said[0][0].upper()}{said[0][1:]}**", *(f"```bash\n{line}\n```" for line in said[1:])]
    axes = [
        f"- `{config_flags.flag_of(f)}`: {', '.join(f'`{grid.shown(v)}`' for v in vs)}" for f, vs in sweep.axes.items()
    ]
    first = next(iter(sweep.summaries.values()))
    several = len(first["seeds"]) > 1
    note = f"Numbers are of the read-out `{sweep.readout}`, means over {scores.last_rounds(first)}" + (
        " and over seeds, +- half of the 95 % interval (Student's t). Seeds that diverged count in no mean."
        if several
        else " of one seed, which has no interval."
    )
    table = table_files.markdown([*_head(sweep), "MB sent", "rounds/s", "command", "fingerprint"], rows)
    title = f"Sweep over {', '.join(map(config_flags.flag_of, sweep.axes))}"
    table_files.write_markdown(path, title, [*best, "Grid:", "\n".join(axes), table, note])
