"""What `--help` prints: the flags in groups, the most needed first, with their defaults."""

import re
import textwrap
from collections.abc import Mapping, Sequence

from absl import flags

WIDTH = 116
# Columns of `--flag=default`; a longer one has a line of its own.
LEFT = 32
_REPEAT = re.compile(r";\s*repeat this option to specify a list of values$")
END = (
    "  --flagfile=".ljust(LEFT) + "File of flags, one per line, or the name of a preset, see `fedwin list presets`.",
    "  --helpfull".ljust(LEFT) + "Also shows the flags of absl and of the libraries underneath.",
)


def _shown(flag: flags.Flag) -> str:
    """Returns `--name=default`; of a switch, what turns it from its default."""
    value = flag.default
    if flag.boolean:
        return f"--{'no' if value else ''}{flag.name}"
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    return f"--{flag.name}={'' if value is None else value}"


def _entry(flag: flags.Flag) -> list[str]:
    left = "  " + _shown(flag)
    told = _REPEAT.sub("", flag.help or "")
    if flag.boolean and flag.default:
        told = f"Do not: {told[:1].lower()}{told[1:]}"
    lines = textwrap.wrap(told, WIDTH - LEFT) or [""]
    if len(left) >= LEFT:
        return [left, *(" " * LEFT + line for line in lines)]
    return [left.ljust(LEFT) + lines[0], *(" " * LEFT + line for line in lines[1:])]


def text(program: str, doc: str, groups: Mapping[str, Sequence[str]], known: flags.FlagValues = flags.FLAGS) -> str:
    """Returns the help of a binary.

    Args:
      program: how it is called.
      doc: the docstring of its module.
      groups: title -> names of flags.
      known: where the flags are defined.
    """
    lines = [doc.strip(), "", f"usage: {program} [--flag=value ...]"]
    for title, names in groups.items():
        lines += [f"{title}:", *(line for name in names for line in _entry(known[name]))]
    return "\n".join([*lines, *END])


def full(program: str, doc: str, known: flags.FlagValues = flags.FLAGS) -> str:
    """Returns the help with every flag, as absl lays it out."""
    return f"{doc.strip()}\n\nusage: {program} [--flag=value ...]\n{known.get_help()}"
