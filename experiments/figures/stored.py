"""Stored figures: JSON files of results of `compute`, from which pictures are redrawn."""

import json
import pathlib
from types import ModuleType
from typing import Any

from fedwin.errors import UserError
from fedwin.files import parse_json, read_bytes, replace_text

from . import clients, curves, factors, forgetting, labels, line, plane, smoothness, staleness, sweeps, targets

_MODULES = (clients, curves, plane, line, factors, forgetting, smoothness, targets, labels, sweeps, staleness)
# Kind of a figure -> its module, which has the same name.
KINDS: dict[str, ModuleType] = {module.__name__.rpartition(".")[2]: module for module in _MODULES}


def write(path: str | pathlib.Path, result: dict[str, Any], title: str) -> None:
    """Writes a result of `compute` and the title of its figure as JSON."""
    replace_text(path, json.dumps({"title": title, **result}, allow_nan=False) + "\n")


def read(path: str | pathlib.Path) -> tuple[dict[str, Any], str]:
    """Returns (result of `compute`, title) of a stored figure; raises UserError if the file is not one."""
    try:
        result = parse_json(read_bytes(path))
        title = result.pop("title")
        if result["kind"] not in KINDS:
            raise KeyError(result["kind"])
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}); check the path.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a stored figure; `fedwin figure` writes them next to its pictures.") from error
    return result, title


def redraw(path: str | pathlib.Path, out: str | pathlib.Path, title: str = "") -> None:
    """Draws a stored figure again, without its runs, by default with its title; raises UserError if it is none."""
    result, stored_title = read(path)
    try:
        KINDS[result["kind"]].draw(result, out, title or stored_title)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} does not contain all data of a figure of kind '{result['kind']}'; compute it again."
        ) from error
