"""The command line that stands for a Config, and the directory that stands for a piece of one."""

import dataclasses
import shlex
from typing import Any

from fedwin.runs.config import Config, default_of
from fedwin.runs.fingerprint import hash_of

from . import config_flags

# Longer names of directories are cut: a name has 255 bytes at most.
LONGEST = 200
# Always written: `fedwin train` without a flag that decides anything is the main job.
ALWAYS = ("dataset", "algorithm")
_REPEATED = ("wrap", "observe", "imports")


def flags_of(config: Config) -> list[str]:
    """Returns the flags of `fedwin train` that make this Config, those at their defaults left out."""
    words: list[str] = []
    for field in dataclasses.fields(Config):
        value = getattr(config, field.name)
        if value != default_of(field) or field.name in ALWAYS:
            words += _words(config_flags.flag_of(field.name), field.name, value)
    return words


def _words(flag: str, field: str, value: Any) -> list[str]:
    if field in _REPEATED:
        return [f"--{flag}={one}" for one in value]
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no{flag}"]
    return [f"--{flag}={','.join(map(str, value)) if isinstance(value, list) else value}"]


def command(config: Config) -> str:
    """Returns the line that runs a Config, or shows what it came to once it has run."""
    return shlex.join(["fedwin", "train", *flags_of(config)])


def folder_name(text: str) -> str:
    """Returns a name of a directory for a piece of a command line: what it says, as far as such a name can."""
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in text)
    return name if len(name) <= LONGEST else with_hash(name, text)


def with_hash(name: str, text: str) -> str:
    """Returns a name that only this text has, because it ends with the text's hash."""
    return f"{name[:LONGEST]}-{hash_of(text, size=4)}"
