"""Consistency checks of multi-process runs: same flags, same data and software in every process."""

import dataclasses
import json

from fedwin import multi_process
from fedwin.errors import UserError
from fedwin.runs.config import Config

# Flags that may differ between processes: paths on their hosts.
HOST_PATHS = ("data_dir", "out_dir", "imports")


def check_flags(config: Config) -> None:
    """Raises UserError in all processes unless all have the same flags; a collective operation."""
    if multi_process.count() == 1:
        return
    flags = {name: value for name, value in dataclasses.asdict(config).items() if name not in HOST_PATHS}
    of_processes = [json.loads(text) for text in multi_process.all_gather_text(json.dumps(flags, default=str))]
    for process, other in enumerate(of_processes):
        for name, value in other.items():
            if value != of_processes[0][name]:
                raise UserError(
                    f"process {process} has --{name}={value}, process 0 has {of_processes[0][name]}; give all "
                    f"processes the same flags."
                )


def check_identity(fingerprint: str) -> None:
    """Raises UserError in all processes unless all have the same data and code; a collective operation."""
    of_processes = multi_process.all_gather_text(fingerprint)
    for process, other in enumerate(of_processes):
        if other != of_processes[0]:
            raise UserError(
                f"process {process} has other data, another version of jax or another device than process 0; give all "
                f"processes the same data in --data_dir and the same environment."
            )
