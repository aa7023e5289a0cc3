"""Grids over flags of `fedwin train`: `client_lr=0.01,0.1` and `algorithm=fedprox:mu=0.1;fedprox:mu=0.01`."""

import dataclasses
import itertools
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedwin.errors import UserError
from fedwin.registry import nearest
from fedwin.runs.config import Config, default_of

from ..cli import command_line, config_flags

# Field -> its values.
Axes = Mapping[str, Sequence[Any]]
# Field -> its value.
Point = dict[str, Any]

# Adds nothing to a flag that repeats.
NONE = "none"
# Flags that are no axes, and what is done instead.
_ELSEWHERE = {
    "out_dir": "every run has a directory of its own below --out_dir",
    "seeds": "every run of the grid takes all of --seeds",
    "import": "imported code serves all runs",
}
# What a directory's name can tell apart; a hash tells the rest.
_TOLD = re.compile(r"[\w.:=, -]*", re.ASCII)


def parse(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Returns field -> values of several --grid.

    >>> parse(["client_lr=0.01,0.1", "algorithm=fedprox:mu=0.1;fedavg"])
    {'client_lr': [0.01, 0.1], 'algorithm': ['fedprox:mu=0.1', 'fedavg']}

    Args:
      texts: each an axis; its values are separated by commas, or, if there is any, by semicolons.

    Raises:
      UserError: an axis that cannot be read, or is given twice.
    """
    axes: dict[str, list[Any]] = {}
    for text in texts:
        name, values = _axis(text)
        if name in axes:
            raise UserError(f"grid={text}: {config_flags.flag_of(name)} is an axis already; put all values into one.")
        axes[name] = values
    if not axes:
        raise UserError("grid: give at least one axis, e.g. --grid=client_lr=0.01,0.05,0.1.")
    return axes


def _axis(text: str) -> tuple[str, list[Any]]:
    """Returns the field and the values of one --grid."""
    flag, equals, rest = text.partition("=")
    flag, known = flag.strip().removeprefix("--"), config_flags.fields()
    if not equals or not flag:
        raise UserError(f"grid='{text}' is not FLAG=VALUE,VALUE; write e.g. --grid=client_lr=0.01,0.1.")
    if flag not in known:
        raise UserError(f"grid={text}: `fedwin train` has no flag --{flag}.{nearest(flag, known)}")
    if flag in _ELSEWHERE:
        raise UserError(f"grid={text}: --{flag} is no axis, {_ELSEWHERE[flag]}; omit it.")
    pieces = [piece.strip() for piece in rest.split(";" if ";" in rest else ",")]
    if "" in pieces:
        raise UserError(f"grid={text}: a value is empty; write FLAG=VALUE,VALUE, with ';' between values with commas.")
    values = [_value(known[flag], piece, text) for piece in pieces]
    for number, value in enumerate(values):
        if value in values[:number]:
            raise UserError(f"grid={text}: {pieces[number]} is there twice; keep one.")
    return known[flag].name, values


def _value(field: dataclasses.Field, piece: str, text: str) -> Any:
    if isinstance(default_of(field), list):
        return [] if piece == NONE else [piece]
    try:
        return config_flags.read(field, piece)
    except UserError as error:
        raise UserError(f"grid={text}: {error}") from error


def points(axes: Axes) -> list[Point]:
    """Returns every combination of the axes' values, the last axis running fastest.

    >>> points({"client_lr": [0.1, 1.0], "local_epochs": [1]})
    [{'client_lr': 0.1, 'local_epochs': 1}, {'client_lr': 1.0, 'local_epochs': 1}]

    Args:
      axes: field -> values.
    """
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def size(axes: Axes) -> int:
    """Returns how many points there are, without making them."""
    return math.prod(len(values) for values in axes.values())


def format_value(value: Any) -> str:
    """Returns a value as its flag has it."""
    if isinstance(value, list):
        return ",".join(map(str, value)) or NONE
    return str(value).lower() if isinstance(value, bool) else str(value)


def label(point: Point) -> str:
    """Returns what a point is called: 'client_lr=0.1 local_epochs=1'."""
    return " ".join(f"{config_flags.flag_of(field)}={format_value(value)}" for field, value in point.items())


def directory_name(point: Point) -> str:
    """Returns the name of a point's directory; it depends on the point alone, so that a grid may grow."""
    told = label(point)
    name = command_line.folder_name(told)
    return name if _TOLD.fullmatch(told) else command_line.with_hash(name, told)


def config_of(base: Config, point: Point) -> Config:
    """Returns `base` with a point's values, below base.out_dir; a flag that repeats keeps what base has of it."""
    changes: dict[str, Any] = {
        field: [*getattr(base, field), *value] if isinstance(value, list) else value for field, value in point.items()
    }
    return dataclasses.replace(base, **changes, out_dir=str(pathlib.Path(base.out_dir) / directory_name(point)))


def configs(base: Config, axes: Axes) -> dict[str, Config]:
    """Returns label -> Config of every point.

    Raises:
      UserError: two would share a directory.
    """
    found: dict[str, Config] = {}
    taken: dict[str, str] = {}
    for point in points(axes):
        name, config = label(point), config_of(base, point)
        if config.out_dir in taken:
            raise UserError(f"grid: '{name}' and '{taken[config.out_dir]}' write to the same place; keep one.")
        taken[config.out_dir] = name
        found[name] = config
    return found
