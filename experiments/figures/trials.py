"""What a run's directory says about data and traffic, without a checkpoint."""

import dataclasses
import os
import pathlib
from typing import Any

from fedwin import plugins
from fedwin.analysis import traffic
from fedwin.errors import UserError
from fedwin.runs import directory as directories
from fedwin.runs.config import Config
from fedwin.runs.prepare import PreparedRun, prepare


def config_of(directory: str | pathlib.Path) -> dict[str, Any]:
    """Returns the flags of a run; raises UserError where there is none."""
    if not os.path.isfile(os.path.join(directory, "config.json")):
        raise UserError(f"{directory}: this is not the directory of a run; `fedwin list runs` shows them.")
    return directories.read(pathlib.Path(directory)).config


def trial_of(directory: str | pathlib.Path, data_dir: str | None = None) -> PreparedRun:
    """Returns what a run's configuration means: data set, partition, network.

    Args:
      directory: the run's.
      data_dir: where the data set's files are now; None: where they were.

    Raises:
      UserError: there is no run, or its data are not there.
    """
    said = config_of(directory)
    fields = {field.name for field in dataclasses.fields(Config)}
    config = Config(**{name: value for name, value in said.items() if name in fields})
    if data_dir is not None:
        config = dataclasses.replace(config, data_dir=str(data_dir))
    plugins.load(config.imports)
    return prepare(config)


def is_known(header: dict[str, Any]) -> bool:
    """Whether `bytes_per_round` can be told of a run."""
    return "bytes" in header or "directory" in header


def bytes_per_round(header: dict[str, Any], data_dir: str | None = None) -> int:
    """Returns the bytes that all clients of a round receive and send.

    Args:
      header: as `sources.read` returns it.
      data_dir: where the data set's files are now; None: where they were.

    Raises:
      UserError: a kept result does not say it, or the run's data are not there.
    """
    if "bytes" in header:
        return traffic(tuple(header["bytes"]), 1, header["config"]["clients_per_round"])
    if "directory" not in header:
        raise UserError(f"{header['label']} was kept without 'bytes', what a client receives and sends per round.")
    prepared = trial_of(header["directory"], data_dir)
    return traffic(prepared.rehearse(), 1, prepared.setting.clients_per_round)
