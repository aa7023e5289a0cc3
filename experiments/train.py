"""Trains one federated run, or without any flag the main job: FedAvg, WIMA, SWA and IMA on handwritten digits.

  python -m experiments.train
  python -m experiments.train --flagfile=experiments/flags/cifar10_scaffold_wima.flags --data_dir=DIR

A choice with parameters is written name:key=value,key=value.
"""

import dataclasses
import pathlib
import sys
import warnings

from absl import app, flags, logging

import fedwin
from fedwin.engine import devices
from fedwin.errors import UserError
from fedwin.runs.config import Config


def define_flags(known: flags.FlagValues = flags.FLAGS) -> None:
    """Makes an absl flag of every field of Config."""
    for field in dataclasses.fields(Config):
        help = field.metadata["help"]
        default = field.default_factory() if field.default is dataclasses.MISSING else field.default
        if field.name in ("wrap", "observe"):
            flags.DEFINE_multi_string(field.name, default, help, flag_values=known)
        elif isinstance(default, list):
            flags.DEFINE_list(field.name, default, help, flag_values=known)
        elif isinstance(default, bool):
            flags.DEFINE_bool(field.name, default, help, flag_values=known)
        elif isinstance(default, int):
            flags.DEFINE_integer(field.name, default, help, flag_values=known)
        elif isinstance(default, float):
            flags.DEFINE_float(field.name, default, help, flag_values=known)
        else:
            flags.DEFINE_string(field.name, default, help, flag_values=known)
    flags.DEFINE_bool(
        "list_algorithms",
        False,
        "Print every algorithm with its hyper-parameters and costs, and stop.",
        flag_values=known,
    )


def config_from_flags(known: flags.FlagValues = flags.FLAGS) -> Config:
    return Config(**{field.name: known[field.name].value for field in dataclasses.fields(Config)})


def says_what_to_run() -> bool:
    """Whether any flag that decides what is computed stands on the command line or in a flagfile."""
    return any(not f.metadata["operational"] and flags.FLAGS[f.name].present for f in dataclasses.fields(Config))


def main(argv) -> None:
    if len(argv) > 1:
        raise UserError(f"'{argv[1]}' is not a flag; flags begin with --, see --help.")
    devices.use_every_core()
    if flags.FLAGS.list_algorithms:
        from fedwin.algorithms import ALGORITHMS

        print(ALGORITHMS.table("plain"))
        return
    from experiments import main_job, report
    from fedwin.runs import run as runner

    config = config_from_flags()
    if not says_what_to_run():
        main_job.main(config)
        return
    summary = runner.run(config)
    print(report.table({config.algorithm: summary}))


def one_line(show):
    """Prints a warning of fedwin's as one line on stderr; those of other packages as ever, by `show`."""
    own = [pathlib.Path(__file__).parent, pathlib.Path(fedwin.__file__).parent]

    def told(message, category, filename, lineno, file=None, line=None):
        if category is UserWarning and any(pathlib.Path(filename).is_relative_to(place) for place in own):
            print(f"warning: {message}", file=sys.stderr, flush=True)
        else:
            show(message, category, filename, lineno, file, line)

    return told


def guarded(main):
    """Turns a UserError into one line on stderr and exit status 2."""

    def run(argv):
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # orbax tells every file that it touches
        warnings.showwarning = one_line(warnings.showwarning)
        try:
            main(argv)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            print("interrupted; the same command goes on from the last checkpoint.", file=sys.stderr)
            sys.exit(130)

    return run


def run(main) -> None:
    """Runs an absl binary; a bad flag is one line on stderr and exit status 2 too."""

    def parse(argv):
        try:
            return flags.FLAGS(argv)
        except flags.Error as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)

    app.run(guarded(main), flags_parser=parse)


if __name__ == "__main__":
    define_flags()
    run(main)
