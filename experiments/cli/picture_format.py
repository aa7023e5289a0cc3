"""The flag --format of all subcommands that draw."""

from typing import Any

from absl import flags

from ..figures import style

NAME = "format"


def define(flag_values: flags.FlagValues | None = None) -> list[str]:
    """Defines the flag, by default among those of the process; returns its name in a list."""
    text = (
        "Format of the pictures; by default that of the file's suffix, or png. pdf and svg have their fonts embedded."
    )
    where: dict[str, Any] = {} if flag_values is None else {"flag_values": flag_values}
    flags.DEFINE_enum(NAME, None, style.FORMATS, text, **where)
    return [NAME]


def chosen(flag_values: flags.FlagValues = flags.FLAGS) -> str:
    """Returns the format of pictures whose names are not the user's; png where no subcommand defined the flag."""
    return (NAME in flag_values and flag_values[NAME].value) or style.FORMATS[0]
