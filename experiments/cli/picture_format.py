"""The flag --format of all subcommands that draw."""

from absl import flags

from ..figures import style

NAME = "format"


def define(flag_values: flags.FlagValues = flags.FLAGS) -> list[str]:
    """Defines the flag; returns its name in a list."""
    text = (
        "Format of the pictures; by default that of the file's suffix, or png. pdf and svg have their fonts embedded."
    )
    flags.DEFINE_enum(NAME, None, style.FORMATS, text, flag_values=flag_values)
    return [NAME]


def chosen(flag_values: flags.FlagValues = flags.FLAGS) -> str:
    """Returns the format of pictures whose names are not the user's."""
    return flag_values[NAME].value or style.FORMATS[0]
