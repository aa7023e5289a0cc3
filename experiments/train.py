"""Trains one federated run, or without any flag the main job: FedAvg, WIMA, SWA and IMA on handwritten digits.

  fedwin train
  fedwin train --flagfile=cifar10_scaffold_wima --data_dir=DIR
  fedwin train --flagfile=cifar10_scaffold_wima --data_dir=DIR --dry_run
  fedwin train --import=my_methods.py --algorithm=my_method:beta=0.5

A choice with parameters is written name:key=value,key=value; `fedwin list algorithms` and the like show what is
available.
"""

import dataclasses

from absl import flags

import fedwin
from fedwin import jax_config
from fedwin.algorithms import ALGORITHMS
from fedwin.runs.config import Config

from . import main_job
from .cli import config_flags, processes, requirements, subcommand, unused
from .tables import scores


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    groups = config_flags.define(flag_values) | processes.define(flag_values)
    text = "Print every algorithm with its hyper-parameters and costs, and stop; also `fedwin list algorithms`."
    flags.DEFINE_bool("list_algorithms", False, text, flag_values=flag_values)
    requirements.define(groups, flag_values)
    return groups


def decides_run() -> bool:
    """Whether the command line or a flagfile sets any flag that changes the computation."""
    decisive = {field.name for field in dataclasses.fields(Config) if not field.metadata["operational"]}
    return bool(decisive & config_flags.given_fields())


def main(argv: list[str]) -> None:
    """Trains the run of the flags, or the main job."""
    jax_config.use_every_core()
    if flags.FLAGS.list_algorithms:
        fields = (name for name in config_flags.fields() if name != "import")
        unused.refuse([*fields, "dry_run"], "with --list_algorithms")
        print(ALGORITHMS.table("plain"))
        return
    config = config_flags.config_from_flags()
    if requirements.requested():
        for run in [config] if decides_run() else main_job.configs(config).values():
            requirements.show(run)
        return
    if not decides_run():
        main_job.main(config)
        return
    summary = fedwin.run(config)
    print(scores.summary_table({config.algorithm: summary}))


if __name__ == "__main__":
    subcommand.run(main, define_flags)
