"""The flagfiles that are shipped, by name: `--flagfile=wima_cifar10_alpha0`."""

import pathlib
from collections.abc import Sequence

from fedwin.errors import UserError
from fedwin.registry import nearest

from .flag_errors import check_file

FOLDER = pathlib.Path(__file__).parent / "flags"


def presets() -> dict[str, pathlib.Path]:
    """Returns name -> file."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.flags"))}


def path_of(text: str) -> str:
    """Returns the path of a flagfile, or of the preset of that name; raises UserError if there is neither."""
    if pathlib.Path(text).expanduser().is_file():
        check_file(text)
        return text
    known = presets()
    name = pathlib.Path(text).name.removesuffix(".flags")
    if name in known and text in (name, f"{name}.flags"):
        return str(known[name])
    raise UserError(
        f"flagfile={text}: neither a file nor a preset.{nearest(name, known)} `fedwin list presets` names all."
    )


def resolve(argv: Sequence[str]) -> list[str]:
    """Returns the command line with the names of presets replaced by their files."""
    resolved: list[str] = []
    for position, word in enumerate(argv):
        flag, equals, value = word.partition("=")
        if flag in ("--flagfile", "-flagfile") and equals:
            word = f"--flagfile={path_of(value)}"
        elif position and argv[position - 1] in ("--flagfile", "-flagfile"):
            word = path_of(word)
        resolved.append(word)
    return resolved


def table() -> str:
    """Returns a line per preset: its name and what it trains."""
    rows = []
    for name, path in presets().items():
        comments = (line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#"))
        rows.append((name, next(comments, "")))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {told}"[:120].rstrip() for name, told in rows)
