"""Several processes reproduce together: the first one plans, and all of them train what it names."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import fedwin
from fedwin import multi_process
from fedwin.errors import UserError
from fedwin.runs.config import Config
from fedwin.runs.dry_run import Needs, needs
from fedwin.runs.signals import Interrupted


def _run(config: Config) -> dict[str, Any]:
    return fedwin.run(config, quiet=False)


_ACTIONS: dict[str, Callable[[Config], Any]] = {"run": _run, "needs": needs}


def _all(action: str, config: Config) -> Any:
    """Does what the first process says, in all; called by the first one."""
    multi_process.said_by_first([action, dataclasses.asdict(config)])
    return _ACTIONS[action](config)


def run(config: Config) -> dict[str, Any]:
    """Trains a run in all processes and returns its summary, see `fedwin.run`; called by the first one."""
    return _all("run", config)


def estimated(config: Config) -> Needs:
    """Returns what a run would need of all processes, see `runs.needs`; called by the first one."""
    return _all("needs", config)


def wait() -> None:
    """Has the other processes wait on; called by the first one before theirs runs out, which is after half an hour."""
    multi_process.said_by_first(["", {}])


@contextlib.contextmanager
def leading() -> Iterator[None]:
    """Tells the other processes, in the end, that there is no more to do; around all that the first one does."""
    try:
        yield
    except BaseException as error:
        if not multi_process.is_lost(error):
            multi_process.said_by_first(None)
        raise
    multi_process.said_by_first(None)


def follow(data_dir: str) -> None:
    """Does what the first process says until it says that there is no more; called by all others.

    Args:
      data_dir: folder of the data sets' files on this host.
    """
    while (told := multi_process.said_by_first(None)) is not None:
        action, fields = told
        if not action:
            continue
        # What ends a run here ends it in the first process too, which knows what comes next.
        with contextlib.suppress(UserError, Interrupted):
            _ACTIONS[action](Config(**fields | {"data_dir": data_dir}))
