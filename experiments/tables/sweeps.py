"""Sweeps: runs the points of a grid, ranks them, and writes sweep.csv, sweep.md and sweep.png."""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import fedwin
from fedwin import multi_process
from fedwin.analysis import Interval, mean_interval
from fedwin.callbacks import scores
from fedwin.callbacks.scores import Summary
from fedwin.errors import UserError
from fedwin.files import InUse, check_unlocked
from fedwin.registry.ranges import one_of
from fedwin.runs.config import Config
from fedwin.runs.directory import finished_summary
from fedwin.runs.prepare import prepare
from fedwin.runs.run import check_unchanged, readout_names

from ..cli import command_line, config_flags
from ..records import MODEL
from . import formats, grid, sweep_picture
from .comparison import by_seed, megabytes_of

# Seconds between two checks of runs that other processes have locked.
PAUSE = 2.0


def check_runs(configs: Mapping[str, Config], readout: str = MODEL, here: bool = True) -> None:
    """Checks all runs before the first one starts, of those that have finished the data; locked ones have been checked.

    Args:
      here: whether this machine trains them; otherwise what depends on its devices and memory is not checked.

    Raises:
      UserError: names the first run that would be rejected.
    """
    for label, config in configs.items():
        try:
            if finished_summary(config) is None:
                (fedwin.check if here else prepare)(config)
            else:
                check_unchanged(prepare(config), pathlib.Path(config.out_dir))
            if readout != MODEL:
                one_of("readout", readout, readout_names(config))
        except InUse:
            continue
        except UserError as error:
            raise UserError(f"run '{label}': {error}") from error


def _finished_summary(config: Config) -> Summary | None:
    """Returns the summary of a run, as process 0 reads it; None if the run has not finished."""

    def read():
        if not multi_process.is_first():
            return None
        if (summary := finished_summary(config)) is None:
            check_unlocked(config.out_dir)
        return summary

    return multi_process.broadcast_object(multi_process.run_on_all(read))


def run_all(configs: Mapping[str, Config]) -> dict[str, Summary]:
    """Runs what has not finished yet, and returns label -> summary of all runs.

    A run that another process has locked is left to it; at the end this one waits for it, and resumes it if that
    process dies.
    """
    done: dict[str, Summary] = {}
    reported: list[str] = []
    while len(done) < len(configs):
        before, busy = len(done), []
        for number, (label, config) in enumerate(configs.items()):
            if label in done:
                continue
            try:
                if (summary := _finished_summary(config)) is None:
                    print(f"[{number + 1}/{len(configs)}] {label}")
                    summary = fedwin.run(config)
                done[label] = summary
            except InUse:
                busy.append(label)
        if busy and len(done) == before:  # otherwise some may have finished meanwhile
            if busy != reported:
                print(f"other processes compute {len(busy)} of {len(configs)} runs: {', '.join(busy)}")
            reported = busy
            time.sleep(PAUSE)
    return {label: done[label] for label in configs}


def score(summary: Summary, select: str, readout: str = MODEL) -> Interval:
    """Returns the interval over seeds of the metric that a run is ranked by; raises UserError if it has none."""
    check_metric(summary["over_seeds"], readout, select)
    return mean_interval(by_seed(summary, readout, select))


def check_metric(read_outs: Mapping[str, Any], readout: str, select: str) -> None:
    """Raises UserError unless the read-outs of a run, name -> metrics, have the metric that it is ranked by."""
    if select not in read_outs.get(readout, {}):
        available = ", ".join(f"{name} {m}" for name, metrics in read_outs.items() for m in metrics)
        raise UserError(f"select={select}: there is no {readout} {select}; available: {available}.")


# Metrics in the tables, where a run has them.
METRICS = ("accuracy", "r2", "rmse", "loss", "val_accuracy", "val_r2", "val_rmse", "val_loss")


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A finished grid or search.

    Attributes:
      axes: field -> values, or the texts of a search's ranges.
      points: label of a run -> field -> value.
      select: the metric that ranks the runs: the lowest is best where `scores.is_lower`, else the highest.
      trials: label -> optuna.trial.FrozenTrial of a search; empty: a grid.
      pruned: label of a pruned trial -> the round; such trials are not ranked.
    """

    axes: Mapping[str, Sequence[Any]]
    points: dict[str, grid.Point]
    configs: dict[str, Config]
    summaries: dict[str, Summary]
    select: str
    readout: str = MODEL
    trials: dict[str, Any] = dataclasses.field(default_factory=dict)
    pruned: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def complete(self) -> dict[str, Summary]:
        """Label -> summary of the runs that were not pruned."""
        return {label: summary for label, summary in self.summaries.items() if label not in self.pruned}

    @functools.cached_property
    def intervals(self) -> dict[str, Interval]:
        """Label -> the metric that its run is ranked by."""
        return {label: score(summary, self.select, self.readout) for label, summary in self.summaries.items()}

    @functools.cached_property
    def ranked(self) -> dict[str, int]:
        """Label -> rank from best to worst, without pruned runs and those all of whose seeds diverged; ties share one.

        A run with a larger fraction of diverged seeds ranks lower, independent of its mean; ties keep their order.
        """
        scored = {label: self.intervals[label] for label in self.complete}
        sign = 1 if scores.is_lower(self.select) else -1
        keys = {label: (-s.seeds / s.of_seeds, sign * s.mean) for label, s in scored.items() if s.mean is not None}
        ordered = sorted(keys.values())
        return {label: 1 + ordered.index(keys[label]) for label in sorted(keys, key=keys.__getitem__)}

    @functools.cached_property
    def metrics(self) -> list[str]:
        """Columns of the tables: the metric that decides, then those of METRICS that every run has."""
        common = set.intersection(*(set(s["over_seeds"].get(self.readout, {})) for s in self.summaries.values()))
        return [self.select, *(name for name in METRICS if name in common and name != self.select)]

    @property
    def scale(self) -> sweep_picture.Scale:
        """How the metric that selects the best run is written."""
        examples = "held-out" if self.select.startswith("val_") else "test"
        of_readout = "" if self.readout == MODEL else f" of {self.readout}"
        of_classes = any("accuracy" in s["over_seeds"].get(self.readout, ()) for s in self.summaries.values())
        unit = " (%)" if scores.is_share(self.select) else " (nats)" if of_classes else ""
        name = f"{examples} {scores.title_of(self.select.removeprefix('val_'))}{of_readout}{unit}"
        return sweep_picture.Scale(name, *scores.scale_of(self.select), scores.is_lower(self.select))


def best_lines(sweep: Sweep) -> list[str]:
    """Returns the lines that name the best run and its command."""
    if not sweep.ranked:
        return [f"Every run {'was pruned or ' if sweep.pruned else ''}diverged: there is no best run."]
    (label, *others), scale = sweep.ranked, sweep.scale
    interval = sweep.intervals[label]
    extreme = "lowest" if scale.smaller else "highest"
    number = formats.mean_and_half_width(interval, scale.factor, scale.digits)
    if formats.shown(interval).half_width is not None:
        number += f" ({formats.CI})"
    if ties := [other for other in others if sweep.ranked[other] == 1]:
        number += f", as {', '.join(ties)}: a tie, of which the first is named"
    if lost := interval.of_seeds - interval.seeds:
        number += f"; {lost} of its {interval.of_seeds} seeds diverged"
    averaged = scores.averaged_rounds({label: sweep.summaries[label]})
    return [
        f"best of {len(sweep.configs)} by {extreme} {scale.name}, mean over {averaged}: {label}: {number}",
        command_line.train_command(sweep.configs[label]),
    ]


def end_notes(sweep: Sweep) -> list[str]:
    """Returns a note for each axis of a grid, of at least three numbers, at whose lowest or highest the best run is.

    The least number that a flag takes, such as --weight_decay=0, has none: there is no lower one.
    """
    if not sweep.ranked or sweep.trials:
        return []
    notes = []
    for field, value in sweep.points[next(iter(sweep.ranked))].items():
        values = sweep.axes[field]
        if len(values) < 3 or not isinstance(value, (int, float)):
            continue
        least = get_args(Config.__dataclass_fields__[field].type)[1].least
        ends = {min(values): ("lowest", "lower"), max(values): ("highest", "higher"), least: None}
        if (found := ends.get(value)) is not None:
            flag = f"{config_flags.flag_of(field)}={grid.format_value(value)}"
            notes.append(f"note: {flag} is the {found[0]} of its values; a {found[1]} one may be better")
    return notes


def write(folder: pathlib.Path, sweep: Sweep, form: str = "png") -> None:
    """Writes sweep.csv, sweep.md and sweep.png to an existing folder."""
    _write_csv(folder / "sweep.csv", sweep)
    _write_markdown(folder / "sweep.md", sweep)
    draw = sweep_picture.draw_search if sweep.trials else sweep_picture.draw
    draw(sweep.trials or sweep.axes, sweep.intervals, list(sweep.ranked), sweep.scale, folder / f"sweep.{form}")


def _write_csv(path: pathlib.Path, sweep: Sweep) -> None:
    rows = []
    for label, point in sweep.points.items():
        summary, config = sweep.summaries[label], sweep.configs[label]
        row: dict[str, Any] = {"rank": sweep.ranked.get(label), "winner": int(label == next(iter(sweep.ranked), None))}
        row |= {config_flags.flag_of(field): grid.format_value(value) for field, value in point.items()}
        row["readout"] = sweep.readout
        for name in sweep.metrics:
            interval = score(summary, name, sweep.readout)
            row[name], row[f"{name}_half_width_95"] = interval.mean, formats.shown(interval).half_width
            row[f"{name}_final"] = scores.final(summary, sweep.readout, name)
        if sweep.pruned:
            row["pruned_in_round"] = sweep.pruned.get(label)
        decisive = sweep.intervals[label]
        row |= {"seeds": decisive.seeds, "of_seeds": decisive.of_seeds, "last_rounds": summary["last_rounds"]}
        row |= {"of_rounds": summary["num_rounds"], "evaluations": scores.evaluations(summary)}
        row["megabytes_sent"] = megabytes_of(config, summary)
        row["rounds_per_second"] = scores.rounds_per_second(summary)
        row |= {"command": command_line.train_command(config), "fingerprint": summary["fingerprint"]}
        rows.append(row)
    formats.write_runs(path, rows)


def _cells(sweep: Sweep, label: str) -> list[str]:
    """Returns the cells of a run: the deciding metric with its final value, the other metrics, the number of seeds."""
    summary, cells = sweep.summaries[label], []
    for name in sweep.metrics:
        factor, digits = scores.scale_of(name)
        cells.append(formats.mean_and_half_width(score(summary, name, sweep.readout), factor, digits))
        if name == sweep.select:
            last = scores.final(summary, sweep.readout, name)
            cells.append(scores.number(None if last is None else factor * last, digits))
    interval, pruned = sweep.intervals[label], [str(sweep.pruned.get(label, scores.NOTHING))] if sweep.pruned else []
    return [*cells, *pruned, formats.seed_count(interval.seeds, interval.of_seeds)]


def _head(sweep: Sweep) -> list[str]:
    unit = {name: " (%)" if scores.is_share(name) else "" for name in sweep.metrics}
    plus = f" +- {formats.CI}" if formats.has_intervals(sweep.intervals.values()) else ""
    first, *others = (f"{scores.title_of(name)}{unit[name]}{plus}" for name in unit)
    pruned = ["pruned in round"] if sweep.pruned else []
    return [*map(config_flags.flag_of, sweep.axes), first, f"final{unit[sweep.select]}", *others, *pruned, "seeds"]


def averaging_note(sweep: Sweep) -> str:
    """Returns the line below the tables: rounds and seeds of the means, and the meaning of `+-` and `final`."""
    seeds = len(next(iter(sweep.summaries.values()))["seeds"])
    stopped = sum(bool(scores.stop_notes({run: entry})) for run, entry in sweep.complete.items())
    interval = f", +- {formats.HALF_WIDTH}" if formats.has_intervals(sweep.intervals.values()) else ""
    later = ", of seeds that train after the first at their first evaluation" if seeds > 1 else ""
    return (
        f"{sweep.readout}: mean over {scores.averaged_rounds(sweep.complete or sweep.summaries)}"
        f"{f' and {seeds} seeds' if seeds > 1 else ' of one seed'}{interval}; final: the last evaluation"
        + (f"; seeds of {stopped} runs stopped early, and have means of as many rounds before" if stopped else "")
        + (f"; pruned runs, which are not ranked: means before that round{later}" if sweep.pruned else "")
    )


def _rows(sweep: Sweep) -> dict[str, list[str]]:
    """Returns label -> values of the axes and `_cells`, the best run first and diverged ones last."""
    order = [*sweep.ranked, *(label for label in sweep.configs if label not in sweep.ranked)]
    values = lambda label: map(grid.format_value, sweep.points[label].values())
    return {label: [*values(label), *_cells(sweep, label)] for label in order}


def text(sweep: Sweep) -> str:
    """Returns the table for the terminal, the best run first, and the rounds and seeds of its means."""
    return f"{scores.plain_table([_head(sweep), *_rows(sweep).values()])}\n{averaging_note(sweep)}"


def _write_markdown(path: pathlib.Path, sweep: Sweep) -> None:
    rows = []
    for label, cells in _rows(sweep).items():
        summary, config = sweep.summaries[label], sweep.configs[label]
        cells += [scores.number(megabytes_of(config, summary), 1)]
        cells += [scores.number(scores.rounds_per_second(summary), 1)]
        rows.append([*cells, f"`{command_line.train_command(config)}`", f"`{summary['fingerprint']}`"])
    first_line, *commands = best_lines(sweep)
    best_run = [f"**{first_line[0].upper()}{first_line[1:]}**", *(f"```bash\n{line}\n```" for line in commands)]
    best_run += [f"N{note[1:]}." for note in end_notes(sweep)]
    axes = [
        f"- `{config_flags.flag_of(f)}`: {', '.join(f'`{grid.format_value(v)}`' for v in vs)}"
        for f, vs in sweep.axes.items()
    ]
    several = formats.has_intervals(sweep.intervals.values())
    few = "" if several else f" Fewer than {formats.MIN_SEEDS} seeds have no interval."
    note = f"Read-out {averaging_note(sweep)}. Seeds that diverged count in no mean.{few}"
    table = formats.markdown_table([*_head(sweep), "MB sent", "rounds/s", "command", "fingerprint"], rows)
    title = f"Sweep over {', '.join(map(config_flags.flag_of, sweep.axes))}"
    formats.write_markdown(
        path, title, [*best_run, "Search space:" if sweep.trials else "Grid:", "\n".join(axes), table, note]
    )
