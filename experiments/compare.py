"""Trains several methods on the same seeds, partitions, initial models and cohorts, and prints one table.

Writes comparison.csv, comparison.md and comparison.png to out_dir, by default runs/compare: means and paired
differences from the first method, with 95 % intervals over seeds, and the command and fingerprint of every run.

  fedwin compare     every algorithm on digits, one class per client, 10 of 100 a round (WSM, which needs several
                     classes, with its own FedAvg)
  fedwin compare --dataset=cifar10 --data_dir=DIR --methods=fedavg --methods='fedcm:alpha=0.1 --client_lr=0.1'

All flags of `fedwin train` apply to every method; a method may be followed by its own flags.
"""

import dataclasses
import pathlib
import shlex
import sys
from collections.abc import Iterable
from typing import Any

from absl import flags

from fedwin import jax_config, multi_process, registry
from fedwin.algorithms import ALGORITHMS
from fedwin.callbacks import scores
from fedwin.errors import UserError, escape
from fedwin.losses import LOSSES
from fedwin.runs.config import INTEGER_LISTS, Config

from . import launching
from .cli import command_line, config_flags, picture_format, processes, requirements, subcommand, unused
from .papers.remarks import FOLDER, lines_of
from .papers.trajectories import Fields
from .tables import comparison, formats, sweeps

# Hyper-parameters come from a coarse search on this task (seed 100); momentum methods have a smaller learning rate. On
# clients with one class the gradient of WSM is zero: it is compared with FedAvg on clients of several classes.
METHODS = tuple(
    line["grid"].removeprefix("algorithm=").replace(" ", " --")
    for line in lines_of(FOLDER / "methods.csv")
    if "compare" in line["group"]
)
SETTING: dict[str, Any] = Fields.of(
    "dataset=digits partition=dirichlet:alpha=0 num_clients=100 clients_per_round=10 model=digits_mlp num_rounds=150 "
    "local_epochs=3 batch_size=7 client_lr=0.05 eval_every=10 final_evals=30 out_dir=runs/compare"
) | {"observe": ["wima:window=20"], "seeds": ["0", "1", "2"]}


def every_method() -> tuple[str, ...]:
    """Returns METHODS and, with their defaults, all algorithms that are not among them."""
    listed = {registry.parse(shlex.split(method)[0]).name for method in METHODS}
    return *METHODS, *(name for name in ALGORITHMS.entries if name not in listed)


def parse_method(text: str, base: Config) -> Config:
    """Returns `base` with a method's algorithm and its own flags.

    Args:
      text: 'fedcm:alpha=0.1 --client_lr=0.3'.

    Raises:
      UserError: no name, an unclosed quote, an unknown flag, or one that the comparison sets.
    """
    try:
        algorithm, *own = shlex.split(text) or [""]
    except ValueError as error:
        raise UserError(f"method {text!r}: a quote is not closed; write --methods='NAME --flag=value'.") from error
    if not algorithm or algorithm.startswith("-"):
        raise UserError(f"methods={text!r} does not start with an algorithm; write --methods='NAME --flag=value'.")
    fields = config_flags.fields()
    changes: dict = {"algorithm": algorithm}
    for flag in own:
        flag_name, equals, value = flag.removeprefix("--").partition("=")
        if not equals or flag_name not in fields:
            raise UserError(
                f"method '{text}': '{flag}' is not --flag=value of `fedwin train`.{registry.nearest(flag_name, fields)}"
            )
        name = fields[flag_name].name
        if name in ("algorithm", "out_dir"):
            raise UserError(f"method '{text}': --{flag_name} is set by the comparison; omit it.")
        try:
            given = config_flags.read(fields[flag_name], value)
        except UserError as error:
            raise UserError(f"method '{text}': {error}") from error
        added = isinstance(given, list) and name not in INTEGER_LISTS
        changes[name] = [*changes.get(name, getattr(base, name)), *given] if added else given
    return dataclasses.replace(base, **changes)


def plan(methods: Iterable[str], base: Config) -> dict[str, Config]:
    """Returns method -> its Config, in a folder below base.out_dir; raises UserError if one is wrong or given twice."""
    configs: dict[str, Config] = {}
    method_of: dict[str, str] = {}
    for method in map(str.strip, methods):
        folder = command_line.folder_name(method)
        if folder in method_of:
            raise UserError(
                f"methods: '{method}' and '{method_of[folder]}' are equal, or share the directory {folder}; omit one."
            )
        method_of[folder] = method
        out_dir = str(pathlib.Path(base.out_dir) / folder)
        configs[method] = dataclasses.replace(parse_method(method, base), out_dir=out_dir)
    return configs


def compare(methods: Iterable[str], base: Config, form: str, launcher: launching.Launcher | None) -> None:
    """Checks all methods, runs them below base.out_dir, writes comparison.csv, .md and .png, and prints the tables.

    Raises:
      UserError: a method that would be rejected, or that has no metric of another; none is run then. Or jobs of the
        launcher failed.
    """
    configs, folder = plan(methods, base), pathlib.Path(base.out_dir)
    formats.check_folder(folder)
    multi_process.run_on_all(lambda: sweeps.check_runs(configs, here=launcher is None))
    if len({LOSSES.entries[LOSSES.check(config.loss).name].facts["continuous"] for config in configs.values()}) > 1:
        raise UserError("methods: some predict classes, some numbers; no metric has both: compare them separately.")

    def report(summaries):
        if multi_process.is_first():
            if (first := next(iter(configs))) not in summaries:
                print(f"note: {first} has not ended; differences are to {next(iter(summaries))}", file=sys.stderr)
            rows = comparison.write(folder, summaries, {method: configs[method] for method in summaries}, form)
            print("\n" + scores.summary_table(summaries))
            if len(summaries) > 1:
                print("\n" + comparison.text(rows, summaries))
            print(escape(f"table and picture: {folder}/comparison.csv, comparison.md, comparison.{form}"))

    if launcher is None:
        report(sweeps.run_all(configs))
    else:
        launching.run_all(launcher, configs, folder, report)


def define_flags() -> dict[str, list[str]]:
    """Defines the flags of `fedwin train` and --methods."""
    groups = config_flags.define() | processes.define()
    requirements.define(groups)
    launching.define(groups)
    text = "A method, e.g. fedavg or 'fedcm:alpha=0.1 --client_lr=0.3'; may be repeated; by default all, on digits."
    flags.DEFINE_multi_string("methods", [], text)
    return {"methods": ["methods", *picture_format.define()], **groups}


def main(argv: list[str]) -> None:
    """Runs the methods, prints their table and the paths of the files."""
    unused.refuse(["algorithm"], "in a comparison", f"name the algorithms by --methods=NAME and {unused.OMIT}")
    jax_config.use_every_core()
    methods = flags.FLAGS.methods or every_method()
    usual: dict[str, Any] = {"out_dir": SETTING["out_dir"]} if flags.FLAGS.methods else SETTING
    changes = {name: value for name, value in usual.items() if name not in config_flags.given_fields()}
    base = dataclasses.replace(config_flags.config_from_flags(), **changes)
    launcher = launching.chosen()
    if flags.FLAGS.dry_run:
        formats.check_folder(pathlib.Path(base.out_dir))
        requirements.show_all(plan(methods, base))
        return
    compare(methods, base, picture_format.chosen(), launcher)


if __name__ == "__main__":
    subcommand.run(main, define_flags)
