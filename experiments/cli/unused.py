"""Rejects flags that a command would ignore."""

from collections.abc import Iterable

from absl import flags

from fedwin.errors import UserError

OMIT = "omit it (if a preset sets it, from a copy: fedwin list presets NAME > my.flags)"


def refuse(names: Iterable[str], reason: str, remedy: str = "omit it") -> None:
    """Raises UserError if one of some flags, which have no effect, is given on the command line or in a flagfile.

    Args:
      names: names of the flags; those that are not defined are skipped.
      reason: why they have no effect, such as 'with --plot=none'.
    """
    for name in names:
        if name in flags.FLAGS and flags.FLAGS[name].present:
            raise UserError(f"--{name} has no effect {reason}; {remedy}.")


def refuse_others(used: Iterable[str], groups: dict[str, list[str]], reason: str) -> None:
    """Raises UserError if a flag of a subcommand is given other than those that are used."""
    kept = set(used)
    refuse((name for names in groups.values() for name in names if name not in kept), reason)
