"""What `--help` prints: the flags in groups, the most needed first, with their defaults."""

import textwrap
from collections.abc import Mapping, Sequence

from absl import flags

WIDTH = 116
# Columns of `--flag=default`; a longer one has a line of its own.
LEFT = 32
END = (
    "  --flagfile=              File of flags, one per line, or the name of a preset; `fedwin list presets` names them.",
    "  --helpfull               Also shows the flags of absl and of the libraries underneath.",
)


def _shown(flag: flags.Flag) -> str:
    """Returns `--name=default` as one would write it."""
    value = flag.default
    if flag.boolean:
        return f"--{'' if value else '[no]'}{flag.name}" if not value else f"--[no]{flag.name}=true"
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    return f"--{flag.name}={'' if value is None else value}"


def _entry(flag: flags.Flag) -> list[str]:
    left = "  " + _shown(flag)
    lines = textwrap.wrap(flag.help or "", WIDTH - LEFT) or [""]
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
