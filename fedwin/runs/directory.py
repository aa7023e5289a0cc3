"""The directory of a run: its default path, lock, config.json, and its evaluations and summary, verified."""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from fedwin import plugins
from fedwin.callbacks import tracking
from fedwin.errors import StorageError, UserError
from fedwin.files import RECOVERABLE_ERRNOS, json_value, locked, read_bytes, sealed, write_json, writing
from fedwin.runs.checkpoint_format import read_about
from fedwin.runs.config import Config, default_of
from fedwin.runs.fingerprint import Identity, hash_of, jsonable, set_fields, versions
from fedwin.runs.metrics_log import Line, LinesHash, read_lines

# JSON data.
Json = dict[str, Any]

# Format of config.json. 1: no format number. 3: with a seal, a hash of its contents.
FORMAT = 3

# The files and folders that a run writes into its directory.
FILES = (
    "config.json",
    "metrics.jsonl",
    "summary.json",
    "tensorboard",
    "clients",
    "checkpoints",
    tracking.FOLDER,
    ".lock",
)


def _from_1(contents: Json) -> Json:
    """Format 1 had seeds as text and no imports."""
    config = contents["config"] | {"seeds": [int(seed) for seed in contents["config"]["seeds"]]}
    return contents | {"format": 2, "config": config, "imports": {}}


def _from_2(contents: Json) -> Json:
    """Format 2 had no seal."""
    return contents | {"format": 3}


# Format -> function that converts the contents of config.json to the next format.
MIGRATIONS = {1: _from_1, 2: _from_2}


def default_directory(config: Config) -> pathlib.Path:
    """Returns runs/<dataset>_<algorithm>-<hash>, which is different for every configuration."""
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in f"{config.dataset}_{config.algorithm}")
    return pathlib.Path("runs") / f"{name[:80]}-{hash_of(set_fields(config.decisive()), size=4)}"


@contextlib.contextmanager
def _writable(directory: pathlib.Path, remedy: str = "choose another --out_dir") -> Iterator[None]:
    """Converts an OSError into a StorageError if the disk is full or broken, otherwise into a UserError."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError) or error.errno in RECOVERABLE_ERRNOS:
            with writing(directory):
                raise
        raise UserError(f"out_dir={directory} can't be written ({error.strerror}); {remedy}.") from error


@contextlib.contextmanager
def open_directory(directory: pathlib.Path) -> Iterator[None]:
    """Creates the run's directory, holds its lock, and removes incomplete files of a killed process.

    If a new run is rejected before its first round, everything is removed again.

    Args:
      directory: the run's directory.

    Raises:
      UserError: it can't be written, or another process is using it.
    """
    created = not directory.exists()
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
                _remove(directory, created)
            raise


def _check_folders(directory: pathlib.Path) -> None:
    """Raises UserError if the folders of an existing run's seeds can't be listed or written."""
    for name in ("checkpoints", "clients", "tensorboard"):
        for folder in (directory / name, *sorted((directory / name).glob("seed_*"))):
            with _writable(folder, "make it writable, or choose another --out_dir"):
                if folder.exists():
                    os.listdir(folder)
                    tempfile.TemporaryFile(dir=folder).close()


def _has_rounds(directory: pathlib.Path) -> bool:
    """Returns whether any seed has an evaluation beyond that of its initial model."""
    lines = Counter(line["seed"] for line in read_lines(directory / "metrics.jsonl"))
    return any(count > 1 for count in lines.values())


def _remove(directory: pathlib.Path, itself: bool) -> None:
    """Removes the files of a run, and the directory itself if asked for and empty."""
    for name in FILES:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if itself:
        with contextlib.suppress(OSError):
            directory.rmdir()


@dataclasses.dataclass(frozen=True)
class ConfigFile:
    """The contents of config.json, in the current format.

    Attributes:
      config: all flags.
      identity: everything that decides the run's results.
      fingerprint: fingerprint of the identity, as written.
    """

    config: Json
    identity: Identity
    fingerprint: str


def read_config(directory: pathlib.Path) -> ConfigFile:
    """Reads config.json of any format so far.

    Args:
      directory: the run's directory.

    Raises:
      UserError: the file is missing, can't be read, is damaged, or was written by a later version.
    """
    path = directory / "config.json"
    try:
        contents = json.loads(read_bytes(path))
        number = contents.get("format", 1)
        if number > FORMAT:
            raise UserError(f"{path} was written by a later version (format {number}, not {FORMAT}); update fedwin.")
        if ("seal" in contents or number >= 3) and contents != sealed(contents):
            raise UserError(f"{path} is damaged (its checksum differs); restore it, or choose another --out_dir.")
        while number < FORMAT:
            contents = MIGRATIONS[number](contents)
            number = contents["format"]
        fields = dataclasses.fields(Config)
        config = {field.name: default_of(field) for field in fields} | contents["config"]
        decisive = {field.name: config[field.name] for field in fields if not field.metadata["operational"]}
        device = contents["device"].rpartition(" x")[0]
        jax_version, initial = contents["versions"]["jax"], contents.get("initial", {})
        data, strategy, imports = contents["data"], contents["strategy"], contents["imports"]
        environment = contents.get("environment", {})
        identity = Identity(decisive, data, jax_version, device, strategy, imports, initial, environment)
        return ConfigFile(config, identity, contents["fingerprint"])
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}); choose another --out_dir.") from error
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a run's configuration; choose another --out_dir.") from error


def load_config(config: Config, directory: pathlib.Path) -> ConfigFile | None:
    """Checks that a directory is empty or belongs to the same run.

    Args:
      config: the run.
      directory: its directory.

    Returns:
      The contents of config.json; None if the directory is empty or does not exist.

    Raises:
      UserError: it belongs to a run with other flags, or contains other files.
    """
    try:
        names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    except OSError as error:
        raise UserError(f"out_dir={directory} can't be read ({error.strerror}); choose another --out_dir.") from error
    if "config.json" not in names:
        others = [name for name in names if not name.startswith(".")]
        if others:
            raise UserError(
                f"out_dir={directory} contains other files ({others[0]} ...) and no config.json; "
                f"choose another --out_dir."
            )
        return None
    config_file = read_config(directory)
    previous = config_file.identity.config
    for name, value in jsonable(config.decisive()).items():
        if previous[name] != value:
            remedy = "use the same flags to resume it, or another --out_dir"
            if name == "num_rounds" and value > previous[name]:
                remedy = f"for more rounds use another --out_dir and --fork_from={directory}@{previous[name]}"
            raise UserError(
                f"out_dir={directory} holds a run with --{name}={_text(previous[name])}, not {_text(value)}; {remedy}."
            )
    return config_file


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def write_config(
    directory: pathlib.Path,
    config: Config,
    identity: Identity,
    verified: bool,
    model: str,
    attackers: Mapping[str, list[int]] | None = None,
) -> None:
    """Writes config.json: all flags, the strategy and data that they resolve to, versions, device.

    Args:
      directory: the run's directory.
      config: all flags.
      identity: everything that decides the run's results.
      verified: whether the checksums of the data files were confirmed.
      model: name of the network.
      attackers: seed -> the clients that attack; None or {} without an attack.
    """
    contents = {
        "format": FORMAT,
        "config": dataclasses.asdict(config.resolved()),
        "strategy": identity.strategy,
        "data": identity.data,
        "verified_data": verified,
        "model": model,
        "imports": identity.imports,
        **({"initial": identity.initial} if identity.initial else {}),
        **({"attackers": attackers} if attackers else {}),
        "environment": identity.environment,
        "fingerprint": identity.fingerprint,
        "versions": versions(),
        "device": f"{identity.device} x{jax.device_count()}",
    }
    write_json(directory / "config.json", sealed(json_value(contents)))


def write_summary(directory: pathlib.Path, summary: Json, lines: list[Line]) -> None:
    """Writes summary.json, sealed, with a hash of each seed's evaluations.

    Args:
      directory: the run's directory.
      summary: of the run.
      lines: all evaluations (metrics.jsonl).
    """
    digests = {str(seed): _digest(lines, seed) for seed in summary["seeds"]}
    write_json(directory / "summary.json", sealed(json_value(summary | {"metrics": digests})))


def _digest(lines: list[Line], seed: int, round: float = math.inf) -> str:
    """Returns the hash of a seed's evaluations up to a round."""
    return LinesHash(line for line in lines if line["seed"] == seed and line["round"] <= round).value


def finished_summary(config: Config) -> Json | None:
    """Returns the summary of a finished run, as `run` returned it; None if the run is not finished.

    Reads two small files. A run whose imported code has changed counts as unfinished, so that `run` reports it.

    Args:
      config: the run; without an out_dir its directory is the default one.

    Raises:
      UserError: the directory belongs to another run, or its summary has been altered.
    """
    directory = pathlib.Path(config.out_dir) if config.out_dir else default_directory(config)
    if not (directory / "summary.json").exists() or (config_file := load_config(config, directory)) is None:
        return None
    if config_file.identity.imports != plugins.load(config.imports):
        return None
    return _read_summary(directory, config.seeds)


def verified_summary(directory: str | os.PathLike) -> Json:
    """Returns the summary of a finished run, as `run` returned it, from its directory alone.

    Summaries written before version 0.2 have no seal and are not verified.

    Args:
      directory: the run's directory.

    Raises:
      UserError: the run is not finished, or config.json or summary.json has been altered.
    """
    directory = pathlib.Path(directory)
    config = read_config(directory).config
    if not (directory / "summary.json").exists():
        raise UserError(f"{directory} has no summary.json: the run is not finished; the same command resumes it.")
    return _read_summary(directory, config["seeds"])


def verified_lines(directory: str | os.PathLike) -> list[Line]:
    """Returns all evaluations of a run, compared with the hashes in its checkpoints and its summary.

    Evaluations after the newest checkpoint of an unfinished run have no hash yet; those written before version 0.2 have
    none where checkpoints have no seal.

    Args:
      directory: the run's directory.

    Raises:
      UserError: metrics.jsonl or summary.json has been altered, or can't be read.
    """
    directory = pathlib.Path(directory)
    # Before the lines: a running process appends lines first and saves checkpoints later.
    hashes = [*_checkpoint_hashes(directory), *_summary_hashes(directory)]
    path = directory / "metrics.jsonl"
    lines = read_lines(path)
    for seed, round, expected in hashes:
        if _digest(lines, seed, round) != expected:
            raise UserError(
                f"{path} has been altered: seed {seed}'s evaluations are not those of the run; restore the file, or "
                f"run again in another --out_dir."
            )
    return lines


def _checkpoint_hashes(directory: pathlib.Path) -> Iterator[tuple[int, float, str]]:
    """Yields (seed, round, hash of its evaluations up to the round) of each seed's newest intact checkpoint."""
    for folder in sorted((directory / "checkpoints").glob("seed_*")):
        rounds = sorted((int(path.name) for path in folder.glob("*") if path.name.isdecimal()), reverse=True)
        abouts = (read_about(folder / str(round)) for round in rounds)
        about = next((about for about in abouts if about is not None), None)
        if about is not None and "evaluations" in about:
            yield about["seed"], about["round"], about["evaluations"]


def _summary_hashes(directory: pathlib.Path) -> Iterator[tuple[int, float, str]]:
    """Yields (seed, infinity, hash of all its evaluations) of a finished run."""
    if (directory / "summary.json").exists():
        for seed, expected in _summary_contents(directory / "summary.json").get("metrics", {}).items():
            yield int(seed), math.inf, expected


def _summary_contents(path: pathlib.Path) -> Json:
    """Returns the contents of summary.json."""
    try:
        contents = json.loads(read_bytes(path))
        if not isinstance(contents, dict):
            raise ValueError
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a run's summary; remove it, the same command writes it again.") from error
    if "seal" in contents and contents != sealed(contents):
        raise UserError(f"{path} has been altered (its checksum differs); remove it, the same command writes it again.")
    return contents


def _read_summary(directory: pathlib.Path, seeds: list[int]) -> Json:
    """Returns the summary of a run with these seeds, as `run` returned it."""
    path = directory / "summary.json"
    try:
        summary = summary_from_json(_summary_contents(path))
        if list(summary["seeds"]) != seeds or not isinstance(summary["over_seeds"], dict):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not this run's summary; remove it, the same command writes it again.") from error
    return {name: value for name, value in summary.items() if name not in ("metrics", "seal")}


def summary_from_json(summary: Json) -> Json:
    """Returns a summary from JSON data: seeds as integers, NaN and infinities as numbers."""
    summary = _with_numbers(summary)
    return summary | {"seeds": {int(seed): of_seed for seed, of_seed in summary["seeds"].items()}}


def _with_numbers(node: Any) -> Any:
    """Returns JSON data with numbers in place of the texts that `json_value` makes of NaN and infinities."""
    if isinstance(node, dict):
        return {name: _with_numbers(value) for name, value in node.items()}
    return float(node) if isinstance(node, str) and node in ("nan", "inf", "-inf") else node
