"""Keeping finished curves with the project: small files that redraw every table and figure without training."""

import datetime
import os
import platform
from typing import Any

from fedwin.runs.config import Config, default_of

from .. import commands
from .places import Unit
from .shelf import Kept, Record, read_directory, write_kept

# Digits of accuracies and losses that are kept.
DIGITS = 5
# What machines differ in does not belong to a configuration that others may repeat.
LEFT_OUT = ("out_dir", "data_dir", "imports")
# Said of every run, also where it is what a run has by default.
ALWAYS = ("algorithm", "dataset", "num_rounds", "eval_every", "final_evals", "seeds")


def machine() -> str:
    """Returns this machine in words."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"


def _plain(config: dict[str, Any], source: str) -> dict[str, Any]:
    """Returns what differs from the defaults; another run's directory is named by its key."""
    known = {field: default_of(definition) for field, definition in Config.__dataclass_fields__.items()}
    kept = {name: value for name, value in config.items() if name not in LEFT_OUT and value != known.get(name)}
    for name in ("fork_from", "init_from"):
        if kept.get(name):
            kept[name] = f"{source}@{kept[name].rpartition('@')[2]}"
    return kept | {name: config[name] for name in ALWAYS}


def record_of(unit: Unit) -> Record:
    """Returns what is kept of a finished run: configuration, versions, machine, seconds, and rounded evaluations."""
    found = read_directory(unit.directory, unit.task.run.key)
    source = unit.task.run.parent
    config = _plain(found.header["config"], source.run.key if source else "")
    begins = {name: config[name] for name in ("fork_from", "init_from") if name in config}
    again = unit.task.run.config(**unit.task.fields(), seeds=list(unit.seeds), **begins)
    label = f"{config['algorithm']} {' '.join(config.get('wrap', []))}".strip()
    header = {
        **found.header,
        "label": label,
        "config": config,
        "command": commands.command(again),
        "machine": machine(),
        "kept": datetime.date.today().isoformat(),
    }
    return Record(header, [_rounded(line) for line in found.lines])


def _rounded(line: dict[str, Any]) -> dict[str, Any]:
    def number(value):
        return round(value, DIGITS) if isinstance(value, float) else value

    kept = {name: value for name, value in line.items() if name not in ("train_loss", "seconds")}
    return {
        name: {key: number(each) for key, each in value.items()} if isinstance(value, dict) else number(value)
        for name, value in kept.items()
    }


def keep(unit: Unit, kept: Kept) -> bool:
    """Keeps a finished unit; returns whether anything was written."""
    if not unit.finished:
        return False
    record = record_of(unit)
    path = kept.path(record)
    if path.is_file():
        return False
    write_kept(path, record)
    return True
