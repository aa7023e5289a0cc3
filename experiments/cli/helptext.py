"""Text of `--help`: flags in groups, the most important first, with their defaults."""

import re
import textwrap
from collections.abc import Mapping, Sequence

from absl import flags

WIDTH = 120
# Columns of `--flag=default`; a longer one is on a separate line.
LEFT = 28
_REPEAT = re.compile(r";\s*repeat this option to specify a list of values$")
END = (
    "  --flagfile=".ljust(LEFT) + "File of flags, one per line, or the name of a preset, see `fedwin list presets`.",
    "  --helpfull".ljust(LEFT) + "Also shows the flags of absl and of other libraries.",
)


def _entry(flag: flags.Flag) -> list[str]:
    value = ",".join(map(str, flag.default)) if isinstance(flag.default, (list, tuple)) else flag.default
    # Of a boolean flag, the form that changes its default.
    left = (
        f"  --{'no' if value else ''}{flag.name}"
        if flag.boolean
        else f"  --{flag.name}={'' if value is None else value}"
    )
    description = _REPEAT.sub("", flag.help or "")
    if flag.boolean and flag.default:
        description = f"Do not {description[:1].lower()}{description[1:]}"
    lines = textwrap.wrap(description, WIDTH - LEFT) or [""]
    if len(left) >= LEFT:
        return [left, *(" " * LEFT + line for line in lines)]
    return [left.ljust(LEFT) + lines[0], *(" " * LEFT + line for line in lines[1:])]


def text(program: str, doc: str, groups: Mapping[str, Sequence[str]]) -> str:
    """Returns the help of a subcommand.

    Args:
      program: how it is called, with its arguments.
      doc: the docstring of its module.
      groups: title -> names of flags.
    """
    lines = [doc.strip(), "", f"usage: {program} [--flag=value ...]"]
    for title, names in groups.items():
        lines += [f"{title}:", *(line for name in names for line in _entry(flags.FLAGS[name]))]
    return "\n".join([*lines, *END])
