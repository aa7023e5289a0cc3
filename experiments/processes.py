"""The flags that make a binary one of several processes, on one host or many, which compute its runs together."""

import os
import sys

from absl import flags

from fedwin import multi_process
from fedwin.engine import devices

TITLE = "several processes"
NAMES = ["distributed", "coordinator_address", "num_processes", "process_id"]


def define(known: flags.FlagValues = flags.FLAGS) -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    told = "Join the other processes that SLURM, Open MPI or the Cloud TPU runtime has started."
    flags.DEFINE_bool("distributed", False, told, flag_values=known)
    told = "HOST:PORT of process 0; with --num_processes and --process_id where no cluster tells them."
    flags.DEFINE_string("coordinator_address", None, told, flag_values=known)
    flags.DEFINE_integer("num_processes", None, "How many processes compute the run together.", flag_values=known)
    flags.DEFINE_integer("process_id", None, "Which of them this is, from 0; 0 writes.", flag_values=known)
    return {TITLE: list(NAMES)}


def join(known: flags.FlagValues = flags.FLAGS) -> None:
    """Joins the other processes if the flags ask for it.

    Raises:
      UserError: flags that don't go together, or the others can't be reached.
    """
    if "distributed" not in known:
        return
    address, number, process = (known[name].value for name in NAMES[1:])
    if not known["distributed"].value and (address, number, process) == (None, None, None):
        return
    devices.set_collective_timeouts()
    multi_process.join(address, number, process)
    devices.use_every_core()
    multi_process.check_devices()
    if not multi_process.is_first():
        sys.stdout = open(os.devnull, "w")  # one process tells what happens
