"""What several processes of one run must agree on, and what those have that write nothing."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import jax
import orbax.checkpoint as ocp

from fedwin import multi_process
from fedwin.errors import UserError
from fedwin.runs.config import Config

# Flags that may differ: where things are on each host.
PLACES = ("data_dir", "out_dir", "imports")


def check_flags(config: Config) -> None:
    """Raises UserError in all processes unless all were started with the same flags; a collective."""
    if multi_process.count() == 1:
        return
    mine = {name: value for name, value in dataclasses.asdict(config).items() if name not in PLACES}
    everyone = [json.loads(text) for text in multi_process.texts(json.dumps(mine, default=str))]
    for process, theirs in enumerate(everyone):
        for name, value in theirs.items():
            if value != everyone[0][name]:
                raise UserError(
                    f"process {process} was started with --{name}={value}, process 0 with {everyone[0][name]}; give "
                    f"all the same flags."
                )


def check_identity(fingerprint: str) -> None:
    """Raises UserError in all processes unless all hold the same data and run the same code; a collective."""
    everyone = multi_process.texts(fingerprint)
    for process, theirs in enumerate(everyone):
        if theirs != everyone[0]:
            raise UserError(
                f"process {process} has other data, another version of jax or another device than process 0; give all "
                f"the same --data_dir contents, and the same environment."
            )


def alone() -> ocp.options.MultiprocessingOptions:
    """Returns what orbax must know where other processes compute the same run: this one reads and writes alone."""
    if multi_process.count() == 1:
        return ocp.options.MultiprocessingOptions()
    me = jax.process_index()
    return ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me})


class NoCheckpoints:
    """The checkpoints of a process that leaves them to the first one; as runs.checkpoint.Checkpoints."""

    def rounds(self) -> Sequence[int]:
        """Returns nothing: who writes knows them."""
        return ()

    def save(self, round: int, run, extra: dict[str, Any]) -> None:
        """Leaves it to the first process."""

    def close(self) -> None:
        """Nothing was opened."""
