"""Flags of multi-process runs, on one host or several: --distributed, --coordinator_address and others."""

import os
import sys

from absl import flags

from fedwin import jax_config, multi_process

TITLE = "several processes"
NAMES = ["distributed", "coordinator_address", "num_processes", "process_id"]


def define() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_bool("distributed", False, "Join the other processes of SLURM, Open MPI or the Cloud TPU runtime.")
    text = "HOST:PORT of process 0; with --num_processes and --process_id where no cluster sets them."
    flags.DEFINE_string("coordinator_address", None, text)
    flags.DEFINE_integer("num_processes", None, "Number of processes that compute the run.")
    flags.DEFINE_integer("process_id", None, "Number of this process, from 0; process 0 writes the files.")
    return {TITLE: list(NAMES)}


def join() -> None:
    """Joins the other processes if the flags ask for it; raises UserError for contradictory flags or lost processes."""
    if "distributed" not in flags.FLAGS:
        return
    address, number, process = (flags.FLAGS[name].value for name in NAMES[1:])
    if not flags.FLAGS["distributed"].value and (address, number, process) == (None, None, None):
        return
    jax_config.set_collective_timeouts()
    multi_process.join(address, number, process)
    jax_config.use_every_core()
    multi_process.check_devices()
    if not multi_process.is_first():
        sys.stdout = open(os.devnull, "w")  # only process 0 reports
