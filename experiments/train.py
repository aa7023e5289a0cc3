"""Trains one federated run, or without any flag the main job: FedAvg, WIMA, SWA and IMA on handwritten digits.

  fedwin train
  fedwin train --flagfile=cifar10_scaffold_wima --data_dir=DIR
  fedwin train --flagfile=cifar10_scaffold_wima --data_dir=DIR --dry_run
  fedwin train --import=my_methods.py --algorithm=my_method:beta=0.5

A choice with parameters is written name:key=value,key=value; `fedwin list algorithms` and the like show what there is.
"""

import dataclasses

from absl import flags

import fedwin
from fedwin.algorithms import ALGORITHMS
from fedwin.engine import devices
from fedwin.runs.config import Config

from . import binary, config_flags, dry_run, main_job, processes, report


def define_flags(known: flags.FlagValues = flags.FLAGS) -> dict[str, list[str]]:
    """Defines the flags; importing this file from a test or another binary defines none."""
    groups = config_flags.define(known) | processes.define(known)
    told = "Print every algorithm with its hyper-parameters and costs, and stop; also `fedwin list algorithms`."
    flags.DEFINE_bool("list_algorithms", False, told, flag_values=known)
    dry_run.define(groups, known)
    return groups


def says_what_to_run() -> bool:
    """Whether any flag that decides what is computed is given on the command line or in a flagfile."""
    decisive = {field.name for field in dataclasses.fields(Config) if not field.metadata["operational"]}
    return bool(decisive & config_flags.given())


def main(argv: list[str]) -> None:
    """Runs what the flags say."""
    devices.use_every_core()
    if flags.FLAGS.list_algorithms:
        print(ALGORITHMS.table("plain"))
        return
    config = config_flags.config_from_flags()
    if dry_run.asked_for():
        for one in [config] if says_what_to_run() else main_job.configs(config).values():
            dry_run.show(one)
        return
    if not says_what_to_run():
        main_job.main(config)
        return
    summary = fedwin.run(config)
    print(report.table({config.algorithm: summary}))


if __name__ == "__main__":
    binary.run(main, define_flags)
