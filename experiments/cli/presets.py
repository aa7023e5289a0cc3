"""Shipped flagfiles by name: `--flagfile=wima_cifar10_alpha0`."""

import pathlib
from collections.abc import Sequence

from fedwin.errors import UserError
from fedwin.registry import nearest

from .flag_errors import check_file

FOLDER = pathlib.Path(__file__).parents[1] / "flags"


def presets() -> dict[str, pathlib.Path]:
    """Returns name -> file."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.flags"))}


def path_of(text: str) -> str:
    """Returns the path of a flagfile, or of the preset of that name.

    Raises:
      UserError: there is neither, or the file can't be read.
    """
    if pathlib.Path(text).expanduser().is_file():
        check_file(text)
        return text
    available = presets()
    name = pathlib.Path(text).name.removesuffix(".flags")
    if name in available and text in (name, f"{name}.flags"):
        return str(available[name])
    raise UserError(
        f"flagfile={text}: neither a file nor a preset.{nearest(name, available)} `fedwin list presets` names all."
    )


def resolve(argv: Sequence[str]) -> list[str]:
    """Returns the command line with the names of presets replaced by their files."""
    resolved: list[str] = []
    for position, argument in enumerate(argv):
        flag, equals, value = argument.partition("=")
        if flag in ("--flagfile", "-flagfile") and equals:
            argument = f"--flagfile={path_of(value)}"
        elif position and argv[position - 1] in ("--flagfile", "-flagfile"):
            argument = path_of(argument)
        resolved.append(argument)
    return resolved


def table() -> str:
    """Returns a line per preset: its name and what it trains."""
    rows = []
    for name, path in presets().items():
        comments = (line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#"))
        rows.append((name, next(comments, "")))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {comment}"[:120].rstrip() for name, comment in rows)
