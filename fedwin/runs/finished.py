"""The summary of a run that is done, without running it again."""

import json
import pathlib
from typing import Any

from fedwin import plugins
from fedwin.errors import UserError
from fedwin.runs import directory as directories
from fedwin.runs.config import Config


def finished(config: Config) -> dict[str, Any] | None:
    """Returns what `run` returned for this Config, or None if its directory holds no finished run.

    Reads two small files. A run whose imported code has changed since counts as unfinished: `run` says so.

    Args:
      config: what was run; without an out_dir, in the directory that `run` would choose.

    Raises:
      UserError: the directory holds another run.
    """
    directory = pathlib.Path(config.out_dir) if config.out_dir else directories.default_directory(config)
    path = directory / "summary.json"
    if not path.is_file() or (known := directories.load(config, directory)) is None:
        return None
    if known.identity.imports != plugins.load(config.imports):
        return None
    try:
        summary = json.loads(path.read_bytes(), object_hook=_numbers)
        seeds = {int(seed): found for seed, found in summary["seeds"].items()}
        if list(seeds) != config.seeds or not isinstance(summary["over_seeds"], dict):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not this run's; remove it, the same command writes it anew.") from error
    return summary | {"seeds": seeds}


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    """Makes numbers of what `storage.plain` made of NaN and infinities."""
    words = ("nan", "inf", "-inf")
    return {name: float(value) if isinstance(value, str) and value in words else value for name, value in found.items()}
