"""Running the points of a grid, alone or together with other processes, and choosing the best."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import fedwin
from fedwin import multi_process
from fedwin.analysis import Interval, mean_interval
from fedwin.errors import UserError
from fedwin.files import InUse, check_free
from fedwin.registry import nearest
from fedwin.runs.config import Config
from fedwin.runs.directory import finished
from fedwin.runs.dry_run import readout_names

from . import scores
from .comparison_rows import PLAIN

# Seconds between two looks at runs that other processes are at.
PAUSE = 2.0
# What is better when smaller ends so.
SMALLER = "loss"

Say = Callable[[str], None]


def check(configs: Mapping[str, Config], readout: str = PLAIN) -> None:
    """Checks every run before the first one begins; those that are done, or that another process is at, were checked.

    Args:
      configs: label -> what is to be run.
      readout: what the winner is chosen by, which every run must have.

    Raises:
      UserError: names the run that would be refused.
    """
    for label, config in configs.items():
        try:
            if finished(config) is None:
                fedwin.check(config)
            if readout != PLAIN and readout not in (known := readout_names(config)):
                raise UserError(
                    f"there is no read-out '{readout}'.{nearest(readout, known)} It has: {', '.join(known)}."
                )
        except InUse:
            continue
        except UserError as error:
            raise UserError(f"run '{label}': {error}") from error


def _there(config: Config) -> dict[str, Any] | None:
    """Returns the summary of a run that is done, as the process that has the directories sees it.

    Raises:
      InUse: another process is at it.
    """

    def look():
        if not multi_process.is_first():
            return None
        if (summary := finished(config)) is None:
            check_free(config.out_dir)
        return summary

    return multi_process.said_by_first(multi_process.agreed(look))


def run(configs: Mapping[str, Config], say: Say = print, pause: float = PAUSE) -> dict[str, dict[str, Any]]:
    """Runs what is not done yet and returns label -> summary of all.

    A run that another process is at is left to it; in the end it is waited for, and taken over if that process dies.

    Args:
      configs: label -> what is to be run, each with an out_dir of its own.
      say: is told what happens, a line at a time.
      pause: seconds between two looks at runs of other processes.
    """
    done: dict[str, dict[str, Any]] = {}
    told: list[str] = []
    while len(done) < len(configs):
        before, busy = len(done), []
        for number, (label, config) in enumerate(configs.items()):
            if label in done:
                continue
            try:
                if (summary := _there(config)) is None:
                    say(f"[{number + 1}/{len(configs)}] {label}")
                    summary = fedwin.run(config)
                done[label] = summary
            except InUse:
                busy.append(label)
        if busy and len(done) == before:  # what was busy in a round that took long may be done by now
            if busy != told:
                say(f"other processes are at {len(busy)} of {len(configs)} runs: {', '.join(busy)}")
            told = busy
            time.sleep(pause)
    return {label: done[label] for label in configs}


def score(summary: dict[str, Any], select: str, readout: str = PLAIN) -> Interval:
    """Returns what a run is ranked by.

    Args:
      summary: what `fedwin.run` returned.
      select: a metric: accuracy, loss, val_accuracy ...
      readout: whose.

    Raises:
      UserError: the run has no such number.
    """
    metrics = summary["over_seeds"].get(readout, {})
    if select not in metrics:
        has = ", ".join(f"{name} {metric}" for name, found in summary["over_seeds"].items() for metric in found)
        raise UserError(f"select={select}: there is no {readout} {select}; the run has: {has}.")
    return mean_interval(scores.by_seed(summary, readout, select))


def ranking(summaries: Mapping[str, dict[str, Any]], select: str, readout: str = PLAIN) -> list[str]:
    """Returns the labels from best to worst; those of which no seed is left are not among them.

    Runs of which more seeds diverged come later, whatever their mean; of equals the first stays first.

    Args:
      summaries: label -> what `fedwin.run` returned.
      select: a metric; losses are better when smaller, everything else when larger.
      readout: whose.
    """
    found = {label: score(summary, select, readout) for label, summary in summaries.items()}
    sign = 1 if select.endswith(SMALLER) else -1
    kept = {label: interval for label, interval in found.items() if interval.mean is not None}
    return sorted(kept, key=lambda label: (-kept[label].seeds / kept[label].of_seeds, sign * (kept[label].mean or 0)))


def best(summaries: Mapping[str, dict[str, Any]], select: str = "accuracy", readout: str = PLAIN) -> str | None:
    """Returns the label of the winner, or None where every run diverged.

    Args:
      summaries: label -> what `fedwin.run` returned.
      select: a metric.
      readout: whose.
    """
    return next(iter(ranking(summaries, select, readout)), None)
