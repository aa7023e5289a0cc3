"""The directory of a run: where it is, whose it is, its configuration."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax

from fedwin import plugins
from fedwin.errors import StorageError, UserError
from fedwin.files import RECOVERABLE_ERRNOS, json_value, locked, sealed, write_json, writing
from fedwin.runs.config import Config, default_of
from fedwin.runs.fingerprint import Identity, hash_of, jsonable, set_fields, versions
from fedwin.runs.metrics_log import read_lines

# Format of config.json; 1 had no number, 3 has a seal: a hash of all that it says.
FORMAT = 3

# What a run writes into its directory.
OWN = ("config.json", "metrics.jsonl", "summary.json", "tensorboard", "checkpoints", ".lock")


def _from_1(known: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had seeds as text and no imports."""
    config = known["config"] | {"seeds": [int(seed) for seed in known["config"]["seeds"]]}
    return known | {"format": 2, "config": config, "imports": {}}


def _from_2(known: dict[str, Any]) -> dict[str, Any]:
    """Format 2 had no seal."""
    return known | {"format": 3}


# Format -> what makes the next one of it.
MIGRATIONS = {1: _from_1, 2: _from_2}


def default_directory(config: Config) -> pathlib.Path:
    """Returns runs/<dataset>_<algorithm>-<hash>: every configuration has a directory of its own."""
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in f"{config.dataset}_{config.algorithm}")
    return pathlib.Path("runs") / f"{name[:80]}-{hash_of(set_fields(config.decisive()), size=4)}"


@contextlib.contextmanager
def _writable(directory: pathlib.Path, remedy: str = "choose another --out_dir") -> Iterator[None]:
    """Makes a UserError of an OSError that another directory would mend, and a StorageError of a full disk."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError) or error.errno in RECOVERABLE_ERRNOS:
            with writing(directory):
                raise
        raise UserError(f"out_dir={directory} can't be written ({error.strerror}); {remedy}.") from error


@contextlib.contextmanager
def open_directory(directory: pathlib.Path) -> Iterator[None]:
    """Creates the run's directory, holds its lock, and removes what a killed start left half-written.

    A new run that is refused before its first round leaves nothing behind.

    Args:
      directory: the run's.

    Raises:
      UserError: it can't be written, or another process runs in it.
    """
    made = not directory.exists()
    with _writable(directory):
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink()
    with locked(directory):
        new = not (directory / "config.json").exists()
        with _writable(directory):
            for pattern in (".config.json.*", ".metrics.jsonl.*", ".metrics.*", ".summary.json.*", ".writable.*"):
                for path in directory.glob(pattern):
                    path.unlink(missing_ok=True)
        _check_folders(directory)
        try:
            yield
        except UserError:
            if new and not _has_rounds(directory):
                _remove(directory, made)
            raise


def _check_folders(directory: pathlib.Path) -> None:
    """Raises UserError where a run that is there cannot list or write the folders of its seeds."""
    for name in ("checkpoints", "tensorboard"):
        for folder in (directory / name, *sorted((directory / name).glob("seed_*"))):
            with _writable(folder, "make it writable, or choose another --out_dir"):
                if folder.exists():
                    os.listdir(folder)
                    tempfile.TemporaryFile(dir=folder).close()


def _has_rounds(directory: pathlib.Path) -> bool:
    """Whether any seed has got further than the model that it began with."""
    lines = Counter(line["seed"] for line in read_lines(directory / "metrics.jsonl"))
    return any(count > 1 for count in lines.values())


def _remove(directory: pathlib.Path, whole: bool) -> None:
    for name in OWN:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if whole:
        with contextlib.suppress(OSError):
            directory.rmdir()


@dataclasses.dataclass(frozen=True)
class ConfigFile:
    """The contents of config.json, in today's format.

    Attributes:
      config: all flags.
      identity: what decided the numbers.
      fingerprint: the one that was written.
    """

    config: dict[str, Any]
    identity: Identity
    fingerprint: str


def read_config(directory: pathlib.Path) -> ConfigFile:
    """Reads config.json, of any format so far.

    Raises:
      UserError: it is not there, can't be read, was altered, is no run's or a later version's.
    """
    path = directory / "config.json"
    try:
        known = json.loads(path.read_bytes())
        number = known.get("format", 1)
        if number > FORMAT:
            raise UserError(f"{path} was written by a later version (format {number}, not {FORMAT}); update fedwin.")
        if ("seal" in known or number >= 3) and known != sealed(known):
            raise UserError(f"{path} is damaged (its checksum differs); restore it, or choose another --out_dir.")
        while number < FORMAT:
            known = MIGRATIONS[number](known)
            number = known["format"]
        config = known["config"]
        fields = {field.name: field for field in dataclasses.fields(Config)}
        decisive = {
            name: config.get(name, default_of(field))
            for name, field in fields.items()
            if not field.metadata["operational"]
        }
        device = known["device"].rpartition(" x")[0]
        jax_version, initial = known["versions"]["jax"], known.get("initial", {})
        about = Identity(decisive, known["data"], jax_version, device, known["strategy"], known["imports"], initial)
        return ConfigFile(config, about, known["fingerprint"])
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}); choose another --out_dir.") from error
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a run's configuration; choose another --out_dir.") from error


def load_config(config: Config, directory: pathlib.Path) -> ConfigFile | None:
    """Checks that a directory is free or belongs to the same run; returns the contents of its config.json, or None.

    Raises:
      UserError: it belongs to a run with other flags, or holds other files.
    """
    try:
        there = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    except OSError as error:
        raise UserError(f"out_dir={directory} can't be read ({error.strerror}); choose another --out_dir.") from error
    if "config.json" not in there:
        strangers = [name for name in there if not name.startswith(".")]
        if strangers:
            raise UserError(
                f"out_dir={directory} holds other files ({strangers[0]} ...) and no config.json; "
                f"choose another --out_dir."
            )
        return None
    known = read_config(directory)
    before = known.identity.config
    for name, value in jsonable(config.decisive()).items():
        if before[name] != value:
            raise UserError(
                f"out_dir={directory} holds a run with --{name}={_text(before[name])}, not {_text(value)}; "
                f"use the same flags to resume it, or another --out_dir."
            )
    return known


def _text(value) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def write_config(directory: pathlib.Path, config: Config, about: Identity, verified: bool, model: str) -> None:
    """Writes config.json: all flags, what they were resolved to, versions, device.

    Args:
      directory: the run's.
      config: all flags.
      about: what decides the numbers.
      verified: whether the data's checksums were confirmed.
      model: its name.
    """
    said = {
        "format": FORMAT,
        "config": dataclasses.asdict(config),
        "strategy": about.strategy,
        "data": about.data,
        "verified_data": verified,
        "model": model,
        "imports": about.imports,
        **({"initial": about.initial} if about.initial else {}),
        "fingerprint": about.fingerprint,
        "versions": versions(),
        "device": f"{about.device} x{jax.device_count()}",
    }
    write_json(directory / "config.json", sealed(json_value(said)))


def finished_summary(config: Config) -> dict[str, Any] | None:
    """Returns what `run` returned for this Config, or None if its directory holds no finished run.

    Reads two small files. A run whose imported code has changed since counts as unfinished: `run` says so.

    Args:
      config: what was run; without an out_dir, in the directory that `run` would choose.

    Raises:
      UserError: the directory holds another run.
    """
    directory = pathlib.Path(config.out_dir) if config.out_dir else default_directory(config)
    path = directory / "summary.json"
    if not path.is_file() or (known := load_config(config, directory)) is None:
        return None
    if known.identity.imports != plugins.load(config.imports):
        return None
    try:
        summary = json.loads(path.read_bytes(), object_hook=_numbers)
        seeds = {int(seed): found for seed, found in summary["seeds"].items()}
        if list(seeds) != config.seeds or not isinstance(summary["over_seeds"], dict):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not this run's; remove it, the same command writes it anew.") from error
    return summary | {"seeds": seeds}


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    """Makes numbers of what `storage.plain` made of NaN and infinities."""
    words = ("nan", "inf", "-inf")
    return {name: float(value) if isinstance(value, str) and value in words else value for name, value in found.items()}
