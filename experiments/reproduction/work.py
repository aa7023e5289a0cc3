"""Trains the planned runs, each once: time budget, work shared by processes, resuming after interruptions.

Processes with one --out_dir take different directories: the lock of a directory decides who trains it. With
--distributed, process 0 decides, and broadcasts each Config to the others, which train it with it.
"""

import contextlib
import dataclasses
import functools
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import fedwin
from fedwin import data, multi_process
from fedwin.errors import UserError
from fedwin.files import InUse
from fedwin.runs import signals
from fedwin.runs.config import Config
from fedwin.runs.run import measure_requirements

from .. import launching
from .runs import RunDirectory

# Seconds after which directories that other processes were training are checked again.
PATIENCE = 5.0
# Name of an action of all processes -> function of a Config.
ACTIONS: dict[str, Callable[[Config], Any]] = {"train": fedwin.run, "measure": measure_requirements}


class BudgetSpent(Exception):
    """The time budget is over; everything is saved."""


@functools.cache
def missing(dataset: str, data_dir: str, scale: str = "") -> str:
    """Returns why a data set can't be used at a scale; '' if it can. At paper scale it must be complete."""
    try:
        subset = data.describe_subset(dataset, data.load(dataset, data_dir))
    except UserError as error:
        return str(error)
    if scale != "paper" or not subset:
        return ""
    return f"--scale=paper needs the complete data set; {dataset} in --data_dir={data_dir} has {subset}."


def in_all_processes(action: str, config: Config) -> Any:
    """Executes an action of ACTIONS in all processes; called by process 0."""
    multi_process.broadcast_object([action, dataclasses.asdict(config)])
    return ACTIONS[action](config)


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


def follow(data_dir: str) -> None:
    """Executes the actions that process 0 broadcasts until it ends; called by all other processes."""
    while (command := multi_process.broadcast_object(None)) is not None:
        action, fields = command
        # An error that ends a run here ends it in process 0, too, which decides what comes next.
        with contextlib.suppress(UserError, signals.Interrupted):
            if action:
                ACTIONS[action](Config(**fields | {"data_dir": data_dir}))


def work(
    directories: list[RunDirectory], *, data_dir: str = "", budget: float | None = None, scale: str = ""
) -> dict[pathlib.Path, str]:
    """Trains all runs that are not finished; those that another process is training are checked again later.

    Args:
      directories: directories of the runs, a run before its forks.
      budget: seconds after which the current run is saved and this function stops; None: unlimited.

    Returns:
      Directory -> why fedwin rejects its run.

    Raises:
      BudgetSpent: the time is over.
      Interrupted: Ctrl-C or SIGTERM.
    """
    refused: dict[pathlib.Path, str] = {}
    pending = [directory for directory in directories if not directory.finished]
    total = len(pending)
    with _alarm(budget) as spent:
        while pending:
            before = len(pending)
            for directory in list(pending):
                ended = directory.parent is not None and (directory.parent / "summary.json").is_file()
                if directory.parent in refused:
                    refused[directory.path] = "the run that it resumes was refused"
                elif ended and not directory.ready and not directory.finished:
                    refused[directory.path] = f"{directory.parent} has ended without the checkpoint that it starts from"
                elif directory.ready and not directory.finished:
                    if spent.is_set():
                        raise BudgetSpent
                    print(f"[{total - len(pending) + 1}/{total}] {directory.label}")
                    try:
                        config = directory.config(data_dir)
                        if scale == "paper" and (reason := missing(config.dataset, data_dir, scale)):
                            raise UserError(reason)
                        in_all_processes("train", config)
                    except InUse:
                        continue
                    except UserError as error:
                        refused[directory.path] = str(error)
                    except signals.Interrupted:
                        if spent.is_set():
                            raise BudgetSpent from None
                        raise
                if directory.finished or directory.path in refused:  # here, or by another process
                    pending.remove(directory)
            if len(pending) == before:
                multi_process.broadcast_object(["", {}])  # before the half-hour timeout of the other processes ends
                if spent.wait(PATIENCE):
                    raise BudgetSpent
    return refused


def launch(
    launcher: launching.Launcher, directories: list[RunDirectory], folder: pathlib.Path, data_dir: str, scale: str
) -> launching.Failures:
    """Trains all runs that are not finished by a launcher, or prints their commands; returns what `work` does."""
    jobs: dict[pathlib.Path, launching.Job] = {}
    refused: launching.Failures = {}
    ready = lambda directory: lambda: directory.ready
    for each in directories:
        if not each.finished:
            config = each.config(data_dir)
            jobs[each.path] = launching.Job(each.label, config, ready(each))
            if scale == "paper" and (reason := missing(config.dataset, data_dir, scale)):
                refused[jobs.popitem()[0]] = reason
    return refused | launching.launch(launcher, jobs, folder)


@contextlib.contextmanager
def _alarm(seconds: float | None) -> Iterator[threading.Event]:
    """Sets an event after some seconds, and asks the current run to save and stop; never for None."""
    spent = threading.Event()

    def ring() -> None:
        spent.set()
        if (watch := signals.active()) is not None:
            watch.request(signal.SIGTERM)

    timer = threading.Timer(seconds or 0.0, ring)
    timer.daemon = True
    if seconds is not None:
        timer.start()
    try:
        yield spent
    finally:
        timer.cancel()
