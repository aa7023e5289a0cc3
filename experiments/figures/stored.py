"""Results of `compute` as JSON files, and which module draws which kind."""

import json
import pathlib
from types import ModuleType
from typing import Any

from fedwin.errors import UserError
from fedwin.files import replace_text
from fedwin.registry import nearest

from . import curves, factors, forgetting, labels, line, plane, smoothness, sweeps, targets

KINDS: dict[str, ModuleType] = {
    module.KIND: module
    for module in (curves, plane, line, factors, forgetting, smoothness, targets, labels, sweeps)
}  # fmt: skip


def kind_of(word: str) -> ModuleType:
    """Returns the module of a kind; raises UserError for an unknown one."""
    if word not in KINDS:
        raise UserError(f"there is no figure '{word}'.{nearest(word, KINDS)} Known: {', '.join(KINDS)}.")
    return KINDS[word]


def write(path: str | pathlib.Path, found: dict[str, Any], title: str) -> None:
    """Writes what a figure shows.

    Args:
      path: where it goes.
      found: what `compute` returned.
      title: the line above the picture.
    """
    replace_text(path, json.dumps({"title": title, **found}, allow_nan=False) + "\n")


def read(path: str | pathlib.Path) -> tuple[dict[str, Any], str]:
    """Returns (found, title) of a kept result.

    Raises:
      UserError: it can't be read, or is none.
    """
    try:
        found = json.loads(pathlib.Path(path).read_bytes())
        title = found.pop("title")
        kind_of(found["kind"])
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}); check the path.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a kept figure; `fedwin figure` writes them beside its pictures.") from error
    return found, title


def redraw(path: str | pathlib.Path, out: str | pathlib.Path) -> None:
    """Draws a kept result again, without training or checkpoints.

    Args:
      path: of the JSON file.
      out: where the picture goes.

    Raises:
      UserError: it can't be read, or is none.
    """
    found, title = read(path)
    try:
        KINDS[found["kind"]].draw(found, out, title)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(f"{path} does not hold a whole figure of kind '{found['kind']}'; compute it anew.") from error
