"""Trains every point of a grid over flags of `fedwin train`, or those that a search draws, and names the best.

  fedwin sweep --algorithm=fedavg --grid=client_lr=0.01,0.05,0.1 --seeds=0,1,2
  fedwin sweep --grid='algorithm=fedprox:mu=0.1;fedprox:mu=0.01' --grid=client_lr=0.05,0.1 --val_fraction=0.1
  fedwin sweep --search=optuna:trials=50 --grid=client_lr=log:0.001..1 --grid=batch_size=8..64 --val_fraction=0.1

Each run has a separate directory below out_dir, by default runs/sweep_..., where sweep.csv, .md and .png are written at
the end. The same command resumes an interrupted sweep; several processes with the same command share its runs.
"""

import dataclasses
import math
import pathlib
from collections.abc import Collection

from absl import flags

from fedwin import jax_config, multi_process
from fedwin.errors import UserError, escape
from fedwin.files import is_locked
from fedwin.losses import LOSSES
from fedwin.registry.ranges import one_of
from fedwin.runs import directory as directories
from fedwin.runs.config import Config, default_of

from . import launching
from .cli import command_line, config_flags, picture_format, processes, requirements, subcommand, unused
from .records import MODEL, run_directories
from .tables import formats, grid, search, sweeps
from .tables.sweeps import METRICS, Sweep


def define_flags() -> dict[str, list[str]]:
    """Defines the flags of `fedwin train` and those of the grid."""
    groups = config_flags.define() | processes.define()
    requirements.define(groups)
    launching.define(groups)
    axis = (
        "An axis, FLAG=VALUE,VALUE; ';' between values with commas; repeatable; 'none': no wrapper, observer."
        " A search also takes ranges: client_lr=log:0.001..1, algorithm=fedprox:mu={0.01..1}."
    )
    flags.DEFINE_multi_string("grid", [], axis)
    search = "Which runs: all points of the grid, or optuna:trials=50,seed=0,pruner=median."
    flags.DEFINE_string("search", "grid", search)
    select = f"Metric that ranks the runs ({', '.join(METRICS)}); empty: accuracy or r2, with --val_fraction val_."
    flags.DEFINE_string("select", "", select)
    flags.DEFINE_string("readout", MODEL, "Read-out whose metric decides: model, or one such as wima50.")
    flags.DEFINE_integer("max_runs", 200, "Maximum number of runs of a grid; more are an error.", lower_bound=1)
    of_grid = ["grid", "search", "select", "readout", "max_runs", *picture_format.define()]
    return {"the grid": of_grid, **groups}


def select_metric(select: str, base: Config, axes: grid.Axes) -> tuple[str, Config]:
    """Returns the metric that selects the best run, and `base` with its evaluation; UserError if runs lack it."""
    holds_out = bool(base.val_fraction) or 0.0 not in axes.get("val_fraction", [0.0])  # in every run
    continuous = LOSSES.entries[LOSSES.check(base.loss).name].facts["continuous"]
    select = select or "val_" * holds_out + ("r2" if continuous else "accuracy")
    others = () if "loss" in axes else ("accuracy",) if continuous else ("r2", "rmse")
    one_of("select", select, [name for name in METRICS if name.removeprefix("val_") not in others])
    if not select.startswith("val_"):
        return select, base
    if not holds_out:
        raise UserError(f"select={select}: no examples are held out for it; set --val_fraction, e.g. 0.1.")
    return select, dataclasses.replace(base, eval_val=True)


def _folder(base: Config) -> pathlib.Path:
    # The default is independent of the grid's values: a larger grid reuses the runs in the same folder.
    run = directories.default_directory(base)
    folder = pathlib.Path(base.out_dir or run.with_name(f"sweep_{run.name}"))
    formats.check_folder(folder)
    return folder


def _search(settings: search.OptunaSearch, texts: list[str]) -> None:
    """Runs a search, writes its files, prints its table and names the winner."""
    given = flags.FLAGS
    space = search.parse(texts)
    replaced = [name for name, (field, _) in space.items() if not isinstance(default_of(field), list)]
    _refuse_replaced(replaced)
    if multi_process.count() > 1:
        raise UserError(
            "search=optuna: several processes can't compute its runs together; start the same command several times "
            "without --distributed, they share the study."
        )
    if given.dry_run:
        raise UserError("search=optuna draws its runs one by one; for --dry_run leave out --search and name values.")
    unused.refuse(["print_jobs"], "on a search", "start its command in several jobs, which share the study")
    select, base = select_metric(given.select, config_flags.config_from_flags(), space)
    folder = _folder(base)
    launcher, base = launching.chosen(), dataclasses.replace(base, out_dir=str(folder))
    study = search.Search(settings, space, base, select, given.readout, here=launcher is None)
    if launcher is None:
        _report(study.run(), folder)
        return
    own = {"search": given.search, "select": select, "readout": given.readout, "format": picture_format.chosen()}
    # Processes of an earlier launcher that was killed go on; a scheduler knows its own.
    most = launcher.jobs if launcher.takes else launcher.jobs - sum(map(is_locked, run_directories(folder)))
    names = [f"{launching.PROCESS}{number + 1}" for number in range(min(max(most, 1), study.left()))]
    drawn = tuple(f"--{config_flags.flag_of(name)}=" for name in replaced)
    command = [flag for flag in command_line.flags_of(base) if not flag.startswith(drawn)]
    command += [f"--{name}={value}" for name, value in own.items()] + [f"--grid={text}" for text in texts]
    job = launching.Job("", base, search=command, ended=lambda _: not study.left())
    failed = launching.launch(launcher, {folder / name: job._replace(label=name) for name in names}, folder)
    if (sweep := study.recorded()).points:
        _report(sweep, folder)
    launching.conclude(failed)


def _refuse_replaced(fields: Collection[str]) -> None:
    """Raises UserError if a flag is given beside an axis; values of a repeated flag are added to those of the axis."""
    unused.refuse([config_flags.flag_of(name) for name in fields], "beside an axis of the grid for it", unused.OMIT)


def _report(sweep: Sweep, folder: pathlib.Path) -> None:
    """Writes the files of a sweep, prints its table and names the winner."""
    form = picture_format.chosen()
    sweeps.write(folder, sweep, form)
    print("\n" + sweeps.text(sweep))
    print("\n".join([*sweeps.best_lines(sweep), *sweeps.end_notes(sweep)]))
    if any("privacy" in summary for summary in sweep.summaries.values()):
        print("note: epsilon counts each run alone, not the choice among the runs of a sweep")
    print(escape(f"table and picture: {folder}/sweep.csv, sweep.md, sweep.{form}"))


def main(argv: list[str]) -> None:
    """Runs the grid or the search, writes its files, prints its table and names the winner."""
    jax_config.use_every_core()
    given = flags.FLAGS
    if (settings := search.SEARCHES.build(given.search)) is not None:
        unused.refuse(["max_runs"], "with a search, which has --search=optuna:trials=")
        _search(settings, given.grid)
        return
    axes = grid.parse(given.grid)
    _refuse_replaced([name for name, values in axes.items() if not isinstance(values[0], list)])
    select, base = select_metric(given.select, config_flags.config_from_flags(), axes)
    if (count := math.prod(map(len, axes.values()))) > given.max_runs:
        raise UserError(f"grid: {count:,} runs exceed --max_runs={given.max_runs}; omit values, or raise it.")
    folder = _folder(base)
    configs = grid.configs(dataclasses.replace(base, out_dir=str(folder)), axes)
    launcher = launching.chosen()
    multi_process.run_on_all(lambda: sweeps.check_runs(configs, given.readout, here=launcher is None))
    if given.dry_run:
        requirements.show_all(configs)
        return
    points = {grid.label(point): point for point in grid.points(axes)}

    def report(summaries):
        ended = ({label: each[label] for label in summaries} for each in (points, configs))
        if multi_process.is_first():
            _report(Sweep(axes, *ended, summaries, select, given.readout), folder)

    if launcher is None:
        report(sweeps.run_all(configs))
    else:
        launching.run_all(launcher, configs, folder, report)


if __name__ == "__main__":
    subcommand.run(main, define_flags)
