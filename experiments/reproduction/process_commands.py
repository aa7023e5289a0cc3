"""Commands that process 0 of a multi-process reproduction sends to the others: train, estimate, wait, stop."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import fedwin
from fedwin import multi_process
from fedwin.errors import UserError
from fedwin.runs.config import Config
from fedwin.runs.dry_run import Requirements, measure_requirements
from fedwin.runs.signals import Interrupted


def _train(config: Config) -> dict[str, Any]:
    return fedwin.run(config, quiet=False)


_ACTIONS: dict[str, Callable[[Config], Any]] = {"train": _train, "estimate": measure_requirements}


def _execute(action: str, config: Config) -> Any:
    """Broadcasts a command and executes it in this process, too; called by process 0."""
    multi_process.broadcast_object([action, dataclasses.asdict(config)])
    return _ACTIONS[action](config)


def train(config: Config) -> dict[str, Any]:
    """Trains a run in all processes; called by process 0.

    Returns:
      Its summary, see `fedwin.run`.
    """
    return _execute("train", config)


def estimate(config: Config) -> Requirements:
    """Estimates the requirements of a run in all processes; called by process 0."""
    return _execute("estimate", config)


def keep_alive() -> None:
    """Lets the other processes wait on; called by process 0 before their half-hour timeout ends."""
    multi_process.broadcast_object(["", {}])


@contextlib.contextmanager
def coordinating() -> Iterator[None]:
    """Stops the other processes when the body ends; wraps everything that process 0 does."""
    try:
        yield
    except BaseException as error:
        if not multi_process.is_lost_process(error):
            multi_process.broadcast_object(None)
        raise
    multi_process.broadcast_object(None)


def worker_loop(data_dir: str) -> None:
    """Executes commands from process 0 until told to stop; called by all other processes.

    Args:
      data_dir: folder of the data sets' files on this host.
    """
    while (command := multi_process.broadcast_object(None)) is not None:
        action, fields = command
        if not action:
            continue
        # An error that ends a run here ends it in process 0, too, which decides what comes next.
        with contextlib.suppress(UserError, Interrupted):
            _ACTIONS[action](Config(**fields | {"data_dir": data_dir}))
