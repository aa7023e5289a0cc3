"""Grids over flags of `fedwin train`, such as `client_lr=0.01,0.1` or `algorithm=fedprox:mu=0.1;fedprox:mu=0.01`."""

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedwin.errors import UserError
from fedwin.registry import choices, nearest
from fedwin.runs.config import Config, default_of

from ..cli import command_line, config_flags

# Field -> its values.
Axes = Mapping[str, Sequence[Any]]
# Field -> its value.
Point = dict[str, Any]

# Value of a repeated flag that adds nothing.
NONE = "none"
# Flags that can't be axes -> why.
_NOT_AXES = {
    "out_dir": "every run has a separate directory below --out_dir",
    "seeds": "every run of the grid takes all of --seeds",
    "import": "imported code serves all runs",
}
# Labels that a directory name can represent unambiguously; others get a hash.
_UNAMBIGUOUS = re.compile(r"[\w.:=, -]*", re.ASCII)


def parse(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Returns field -> values for the values of --grid.

    >>> parse(["client_lr=0.01,0.1", "algorithm=fedprox:mu=0.1;fedavg"])
    {'client_lr': [0.01, 0.1], 'algorithm': ['fedprox:mu=0.1', 'fedavg']}

    Args:
      texts: an axis each; values are separated by semicolons if there are any, else by commas.

    Raises:
      UserError: an invalid axis, or one that is given twice.
    """
    axes: dict[str, list[Any]] = {}
    for name, (field, pieces) in fields_of(texts).items():
        text = f"{config_flags.flag_of(name)}={','.join(pieces)}"
        if isinstance(default_of(field), (int, float)) and any(".." in piece for piece in pieces):
            raise UserError(f"grid={text} is a range; list the values of a grid, or draw from it with --search=optuna.")
        axes[name] = [value_of(field, piece, text) for piece in pieces]
    return axes


def fields_of(texts: Sequence[str]) -> dict[str, tuple[dataclasses.Field, list[str]]]:
    """Returns field -> (its definition, texts of its values) of --grid; raises UserError for an invalid axis."""
    found: dict[str, tuple[dataclasses.Field, list[str]]] = {}
    for text in texts:
        flag, equals, rest = text.partition("=")
        flag, fields = flag.strip().removeprefix("--"), config_flags.fields()
        if not equals or not flag:
            raise UserError(f"grid='{text}' is not FLAG=VALUE,VALUE; write e.g. --grid=client_lr=0.01,0.1.")
        if flag not in fields:
            of_method = f"A method's parameter is part of its name: --grid='algorithm=NAME:{flag}=1;NAME:{flag}=2'."
            raise UserError(f"grid={text}: `fedwin train` has no flag --{flag}.{nearest(flag, fields)} {of_method}")
        if flag in _NOT_AXES:
            raise UserError(f"grid={text}: --{flag} can't be an axis: {_NOT_AXES[flag]}; omit it.")
        if fields[flag].name in found:
            raise UserError(f"grid={text}: {flag} is given twice; put all values into one axis.")
        pieces = [piece.strip() for piece in rest.split(";" if ";" in rest else ",")]
        if "" in pieces:
            remedy = "write FLAG=VALUE,VALUE, with ';' between values with commas."
            raise UserError(f"grid={text}: a value is empty; {remedy}")
        meant = [_meaning(piece) for piece in pieces]
        if twice := [piece for number, piece in enumerate(pieces) if meant[number] in meant[:number]]:
            raise UserError(f"grid={text}: {twice[0]} is given twice; omit one.")
        found[fields[flag].name] = fields[flag], pieces
    if not found:
        raise UserError("grid: give at least one axis, e.g. --grid=client_lr=0.01,0.05,0.1.")
    return found


def _meaning(piece: str) -> object:
    """Returns what is equal for values that are read alike, such as fedprox:mu=0.1 and fedprox:mu=0.10."""
    try:
        choice = choices.parse(piece)
    except UserError:  # a range, or a text that is not a choice
        return piece
    return choices.literal(choice.name), repr(sorted(choice.params.items()))  # start=1 is not start=1.0


def value_of(field: dataclasses.Field, piece: str, text: str) -> Any:
    """Returns a field's value of a piece of the axis `text`, a list of a repeated flag; UserError for another type."""
    if piece == NONE and isinstance(default_of(field), list):
        return []
    try:
        return config_flags.read(field, piece)
    except UserError as error:
        raise UserError(f"grid={text}: {error}") from error


def points(axes: Axes) -> list[Point]:
    """Returns every combination of the axes' values; the last axis varies fastest.

    >>> points({"client_lr": [0.1, 1.0], "local_epochs": [1]})
    [{'client_lr': 0.1, 'local_epochs': 1}, {'client_lr': 1.0, 'local_epochs': 1}]
    """
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def format_value(value: Any) -> str:
    """Returns a value as it is written in a flag."""
    if isinstance(value, list):
        return ",".join(map(str, value)) or NONE
    return str(value).lower() if isinstance(value, bool) else str(value)


def label(point: Point) -> str:
    """Returns the label of a point, such as 'client_lr=0.1 local_epochs=1'."""
    return " ".join(f"{config_flags.flag_of(field)}={format_value(value)}" for field, value in point.items())


def directory_name(point: Point) -> str:
    """Returns the name of a point's directory; it is independent of the rest of the grid, which may grow."""
    text = label(point)
    name = command_line.folder_name(text)
    return name if _UNAMBIGUOUS.fullmatch(text) else command_line.with_hash(name, text)


def config_of(base: Config, point: Point) -> Config:
    """Returns `base` with a point's values and a directory below base.out_dir; values of repeated flags are added."""
    changes: dict[str, Any] = {
        field: [*getattr(base, field), *value] if isinstance(value, list) else value for field, value in point.items()
    }
    return dataclasses.replace(base, **changes, out_dir=str(pathlib.Path(base.out_dir) / directory_name(point)))


def configs(base: Config, axes: Axes) -> dict[str, Config]:
    """Returns label -> Config of every point."""
    return {label(point): config_of(base, point) for point in points(axes)}
