"""Converts a Config to the command line that runs it, and a piece of a command line to a directory name."""

import dataclasses
import shlex

from fedwin.runs.config import INTEGER_LISTS, Config, default_of
from fedwin.runs.directory import hash_of

from . import config_flags

# Longer names of directories are cut; file systems allow 255 bytes.
LONGEST = 200
# Flags that are written even at their defaults: `fedwin train` without such a flag runs the main job.
ALWAYS = ("dataset", "algorithm")


def flags_of(config: Config) -> list[str]:
    """Returns the flags of `fedwin train` for a Config, without those at their defaults."""
    arguments: list[str] = []
    for field in dataclasses.fields(Config):
        flag, value = config_flags.flag_of(field.name), getattr(config, field.name)
        if value == default_of(field) and field.name not in ALWAYS:
            continue
        if isinstance(value, bool):
            arguments.append(f"--{flag}" if value else f"--no{flag}")
        elif isinstance(value, list) and field.name not in INTEGER_LISTS:
            arguments += [f"--{flag}={item}" for item in value]
        else:
            arguments.append(f"--{flag}={','.join(map(str, value)) if isinstance(value, list) else value}")
    return arguments


def train_command(config: Config) -> str:
    """Returns the shell command that runs a Config, or prints its results if it has finished."""
    return shlex.join(["fedwin", "train", *flags_of(config)])


def folder_name(text: str) -> str:
    """Returns a directory name for a piece of a command line; a long one is cut and ends in a hash."""
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in text)
    return name if len(name.encode()) <= LONGEST else with_hash(name, text)


def with_hash(name: str, text: str) -> str:
    """Returns `name`, shortened if necessary, followed by the hash of `text`."""
    return f"{name.encode()[:LONGEST].decode(errors='ignore')}-{hash_of(text, size=4)}"
