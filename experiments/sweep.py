"""Trains every point of a grid over flags of `fedwin train` and names the best.

  fedwin sweep --algorithm=fedavg --grid=client_lr=0.01,0.05,0.1 --seeds=0,1,2
  fedwin sweep --grid='algorithm=fedprox:mu=0.1;fedprox:mu=0.01' --grid=client_lr=0.05,0.1 --val_fraction=0.1

Each run has a directory of its own below out_dir, where sweep.csv, sweep.md and sweep.png appear in the end. The same
command goes on where it was interrupted, and may be started several times at once: its processes share the runs.
"""

import dataclasses
import pathlib

from absl import flags

from fedwin import multi_process
from fedwin.engine import devices
from fedwin.errors import UserError
from fedwin.registry.checks import one_of
from fedwin.runs import directory as directories
from fedwin.runs.config import Config

from . import binary, config_flags, dry_run, grid, processes, sweep_files, sweeping, table_files
from .comparison_rows import PLAIN
from .sweep_files import METRICS, Sweep

MAX_RUNS = 200


def define_flags(known: flags.FlagValues = flags.FLAGS) -> dict[str, list[str]]:
    """Defines the flags of `fedwin train` and those of the grid."""
    groups = config_flags.define(known) | processes.define(known)
    dry_run.define(groups, known)
    axis = (
        "An axis, FLAG=VALUE,VALUE, with ';' between values that hold commas; repeats. 'wrap' and 'observe' know none."
    )
    flags.DEFINE_multi_string("grid", [], axis, flag_values=known)
    select = f"What the best run has most of ({', '.join(METRICS)}; of a loss: least); empty: val_accuracy with "
    select += "--val_fraction, else accuracy."
    flags.DEFINE_string("select", "", select, flag_values=known)
    flags.DEFINE_string("readout", PLAIN, "Whose: model, or a read-out such as wima50.", flag_values=known)
    flags.DEFINE_integer("max_runs", MAX_RUNS, "A larger grid is refused.", lower_bound=1, flag_values=known)
    return {"the grid": ["grid", "select", "readout", "max_runs"], **groups}


def selected(select: str, base: Config, axes: grid.Axes) -> tuple[str, Config]:
    """Returns the metric that decides, and `base` with the evaluation that it needs.

    Raises:
      UserError: there is no such metric, or no examples are held out for it.
    """
    holds_out = bool(base.val_fraction) or "val_fraction" in axes
    select = select or ("val_accuracy" if holds_out else "accuracy")
    one_of("", "select", select, METRICS)
    if not select.startswith("val_"):
        return select, base
    if not holds_out:
        raise UserError(f"select={select}: no examples are held out for it; set --val_fraction, e.g. 0.1.")
    return select, dataclasses.replace(base, eval_val=True)


def planned(base: Config, axes: grid.Axes, max_runs: int) -> tuple[pathlib.Path, dict[str, Config]]:
    """Returns the folder of a sweep and label -> Config of its runs.

    Raises:
      UserError: there are too many runs, or the folder is a run's own.
    """
    if (count := grid.size(axes)) > max_runs:
        raise UserError(f"grid: {count:,} runs are more than --max_runs={max_runs}; leave values out, or raise it.")
    folder = pathlib.Path(base.out_dir) if base.out_dir else _default_folder(base)
    table_files.check_folder(folder)
    return folder, grid.configs(dataclasses.replace(base, out_dir=str(folder)), axes)


def _default_folder(base: Config) -> pathlib.Path:
    # The values of the grid don't matter: a grid that grows goes on in its folder.
    run = directories.default_directory(base)
    return run.with_name(f"sweep_{run.name}")


def main(argv: list[str]) -> None:
    """Runs the grid, writes its files, prints its table and names the winner."""
    devices.use_every_core()
    given = flags.FLAGS
    axes = grid.parse(given.grid)
    select, base = selected(given.select, config_flags.config_from_flags(), axes)
    folder, configs = planned(base, axes, given.max_runs)
    sweeping.check(configs, given.readout)
    if dry_run.asked_for():
        dry_run.show_all(configs)
        return
    sweep = Sweep(axes, configs, sweeping.run(configs), select, given.readout)
    if not multi_process.is_first():
        return
    table_files.make_folder(folder)
    sweep_files.write(folder, sweep)
    print("\n" + sweep_files.text(sweep))
    print("\n".join(sweep_files.winner(sweep)))
    print(f"table and picture: {folder}/sweep.csv, sweep.md, sweep.png")


if __name__ == "__main__":
    binary.run(main, define_flags)
