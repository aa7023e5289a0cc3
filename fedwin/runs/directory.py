"""The directory of a run: path, lock, config.json with the run's identity and fingerprint, summary and checksums."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from fedwin import multi_process, plugins
from fedwin.callbacks.scores import RunSummary
from fedwin.data import Dataset
from fedwin.data.example_source import feature_digest
from fedwin.data.federation import Federation
from fedwin.errors import StorageError, UserError
from fedwin.files import (
    LOCK_NAME,
    RECOVERABLE_ERRNOS,
    SUMS,
    locked,
    parse_json,
    read_bytes,
    read_verified,
    write_json,
    write_sums,
    writing,
)
from fedwin.registry import parse
from fedwin.runs.config import Config, default_of
from fedwin.runs.machine import environment, versions
from fedwin.runs.metrics_log import read_lines

# JSON data.
Json = dict[str, Any]

# Format of config.json.
FORMAT = 1

# The files and folders that a run writes into its directory.
FOLDERS = ("checkpoints", "clients", "tensorboard")
FILES = ("config.json", "metrics.jsonl", "summary.json", SUMS)
# Flags that may differ between processes: paths on their hosts.
HOST_PATHS = ("data_dir", "out_dir", "imports")


def hash_of(value: object, size: int = 8) -> str:
    """Returns the hash of JSON data in hexadecimal; `size` is its number of bytes."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=size).hexdigest()


def set_fields(decisive: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that hashes include: a new field at its default changes no hash."""
    omitted = {field.name: default_of(field) for field in dataclasses.fields(Config)} | {"final_evals": 100}
    return {name: value for name, value in decisive.items() if value != omitted.get(name)}


def data_hashes(federations: dict[int, Federation]) -> dict[str, str]:
    """Returns seed -> hash of the examples, their partition among clients, and their shifts and drift."""
    examples, hashes = hashlib.blake2b(digest_size=8), {}
    dataset = next(iter(federations.values())).dataset
    for split in (dataset.train, dataset.test):
        for name in sorted(split):
            examples.update(name.encode() + feature_digest(split[name]))
    for seed, federation in federations.items():
        h = examples.copy()
        for part in (federation.partition, federation.validation):
            if part is not None:
                h.update(np.ascontiguousarray(part.order).data)
                h.update(np.ascontiguousarray(part.offset).data)
        h.update(federation.changes.encode())
        hashes[str(seed)] = h.hexdigest()
    return hashes


def file_hashes(config: Config) -> dict[str, str]:
    """Returns flag -> hash of the file of its choice (path=), '' without one: of --local_work and --clock."""
    choices = {flag: parse(getattr(config, flag), str) for flag in ("local_work", "clock") if getattr(config, flag)}
    files = {flag: choice.params.get("path") for flag, choice in choices.items()}
    return {
        flag: hashlib.blake2b(read_bytes(path), digest_size=8).hexdigest() if isinstance(path, str) else ""
        for flag, path in files.items()
    }


@dataclasses.dataclass(frozen=True)
class Identity:
    """Everything that decides a run's results.

    Attributes:
      config: the decisive fields.
      data: seed -> hash of examples and partition.
      device: platform and kind of the device.
      strategy: how cohorts are executed.
      imports: imported file or module -> hash of its content.
      initial: seed -> hash of the parameters from another run (--init_from).
      environment: environment that affects results, from `environment`, and the fingerprint of --fork_from's run.
    """

    config: dict[str, Any]
    data: dict[str, str]
    jax: str
    device: str
    strategy: str
    imports: dict[str, str]
    initial: dict[str, str]
    environment: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """A hash of the identity: runs with the same fingerprint have the same results."""
        parts = [set_fields(self.config), self.data, self.jax, self.device, self.strategy, self.imports]
        return hash_of([*parts, self.initial, self.environment])

    def has_data(self, dataset: Dataset, hashes: dict[str, str]) -> bool:
        """Whether the run had the data of these hashes, and the mean and standard deviation of a data set."""
        scaled = self.environment.get("normalisation") == _normalization(dataset)
        return scaled and hashes.items() <= self.data.items()

    def differences(self, previous: "Identity") -> str:
        """Returns a message that names the differences from a previous identity."""
        then, now = (
            {"jax": each.jax, "device": each.device, "strategy": each.strategy} | dict(sorted(each.environment.items()))
            for each in (previous, self)
        )
        changed = [
            f"{name} was {then.get(name) or 'not set'} and is {now.get(name) or 'not set'}"
            for name in then | now
            if then.get(name) != now.get(name)
        ]
        for name in sorted(previous.imports.keys() | self.imports.keys()):
            if previous.imports.get(name) != self.imports.get(name):
                changed.append(f"the code of {name} has changed")
        return "; ".join(changed)


def _normalization(dataset: Dataset) -> str:
    """Returns mean and standard deviation as the identity of a run contains them."""
    text = lambda values: "none" if values is None else " ".join(repr(float(value)) for value in np.ravel(values))
    return f"mean {text(dataset.mean)}, std {text(dataset.std)}"


def identity(
    config: Config,
    hashes: dict[str, str],
    strategy: str,
    imports: dict[str, str],
    initial: dict[str, str],
    dataset: Dataset,
    convolves: bool = False,
) -> Identity:
    """Returns the identity of a run on this machine, with the normalization of its data set and its `data_hashes`."""
    device = jax.devices()[0]
    kind = f"{device.platform} {device.device_kind}"
    recorded = environment(device.platform, convolves) | {"normalisation": _normalization(dataset)}
    return Identity(config.decisive(), hashes, jax.__version__, kind, strategy, imports, initial, recorded)


def check_flags(config: Config) -> None:
    """Raises UserError in all processes unless all have the same flags; a collective operation."""
    if multi_process.count() == 1:
        return
    flags = {name: value for name, value in dataclasses.asdict(config).items() if name not in HOST_PATHS}
    of_processes = [json.loads(text) for text in multi_process.all_gather_text(json.dumps(flags, default=str))]
    for process, other in enumerate(of_processes):
        for name, value in other.items():
            if value != of_processes[0][name]:
                raise UserError(
                    f"process {process} has --{name}={value}, process 0 has {of_processes[0][name]}; give all "
                    f"processes the same flags."
                )


def check_identity(identity: Identity) -> None:
    """Raises UserError in all processes unless all have the same data and code; a collective operation."""
    # Hosts may differ in their processors and in the paths of imported files: process 0's are recorded.
    config = identity.config | {"imports": sorted(identity.imports.values())}
    alike = dataclasses.replace(identity, config=config, imports={}, environment={})
    of_processes = multi_process.all_gather_text(alike.fingerprint)
    for process, other in enumerate(of_processes):
        if other != of_processes[0]:
            raise UserError(
                f"process {process} has other data, another version of jax, another device or other code of --import "
                f"than process 0; give all processes the same data in --data_dir, code and environment."
            )


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
    """Creates and locks the run's directory, UserError if it can't; removes incomplete files of a killed process.

    If a new run is rejected before its first round, everything is removed again.
    """
    created = not directory.exists()
    with _writable(directory):
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink(missing_ok=True)  # the process that holds the lock removes incomplete files
    with locked(directory):
        new = not (directory / "config.json").exists()
        with _writable(directory):
            for path in [path for name in (*FILES, "writable") for path in directory.glob(f".{name}.*")]:
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
    for name in FOLDERS:
        for folder in (directory / name, *sorted((directory / name).glob("seed*"))):
            with _writable(folder, "make it writable, or choose another --out_dir"):
                if folder.exists():
                    os.listdir(folder)
                    tempfile.TemporaryFile(dir=folder).close()


def _has_rounds(directory: pathlib.Path) -> bool:
    """Returns whether any seed has an evaluation or a checkpoint of a later round than that of its initial model."""
    evaluated = {str(line["round"]) for line in read_lines(directory / "metrics.jsonl")}
    saved = {path.name for path in directory.glob("checkpoints/seed*/*") if path.name.isdecimal()}
    return len(evaluated) > 1 or not saved <= evaluated


def delete(directory: pathlib.Path) -> None:
    """Deletes the files of a run, and its directory if nothing else is in it; raises InUse if a process trains it."""
    with _writable(directory), locked(directory):
        _remove(directory, itself=True)


def _remove(directory: pathlib.Path, itself: bool) -> None:
    """Removes the files of a run, and the directory itself if asked for and empty."""
    for name in FOLDERS:
        shutil.rmtree(directory / name, ignore_errors=True)
    for name in (*FILES, LOCK_NAME):
        (directory / name).unlink(missing_ok=True)
    if itself:
        with contextlib.suppress(OSError):
            directory.rmdir()


@dataclasses.dataclass(frozen=True)
class ConfigFile:
    """The contents of config.json.

    Attributes:
      config: all flags.
      fingerprint: fingerprint of the identity, as written.
      privacy: fields of the guarantee of a private run (accounting.Privacy), or None.
      contents: the whole file, with all flags.
    """

    config: Json
    identity: Identity
    fingerprint: str
    privacy: Json | None
    contents: Json


def read_config(directory: pathlib.Path) -> ConfigFile:
    """Reads config.json; UserError if it is missing, unreadable, altered, of another format or no configuration."""
    path = directory / "config.json"
    try:
        contents = parse_json(read_verified(directory, path.name))
        if (number := contents["format"]) != FORMAT:
            raise UserError(f"{path} has format {number}, not {FORMAT}; use the version of fedwin that wrote it.")
        config = dataclasses.asdict(Config()) | contents["config"]
        try:
            Config(**config).check()
        except UserError as error:
            raise UserError(f"{path}: {error} Restore it, or use the version of fedwin that wrote it.") from error
        fields = [field for field in dataclasses.fields(Config) if not field.metadata["operational"]]
        identity = Identity(
            config={field.name: config[field.name] for field in fields},
            data=contents["data"],
            jax=contents["versions"]["jax"],
            device=contents["device"].rpartition(" x")[0],
            strategy=contents["strategy"],
            imports=contents["imports"],
            initial=contents["initial"],
            environment=contents["environment"],
        )
        texts = (identity.data, identity.imports, identity.initial, identity.environment)
        if not all(isinstance(text, str) for each in texts for text in (*each.values(), contents["fingerprint"])):
            raise TypeError
        own = contents["fingerprint"], contents.get("privacy"), contents | {"config": config}
        return ConfigFile(config, identity, *own)
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}); name a run, or another --out_dir.") from error
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a run's configuration; choose another --out_dir.") from error


def written(value: object) -> str:
    """Returns the value of a flag as it is written."""
    return str(",".join(map(str, value)) if isinstance(value, list) else value) or "''"


def load_config(config: Config, directory: pathlib.Path) -> ConfigFile | None:
    """Returns config.json of a directory, None if it is empty or missing; UserError for other flags or other files."""
    if directory.parts[:1] == ("~",):
        raise UserError(f"out_dir={directory}: bash does not replace ~ behind '='; write $HOME in place of it.")
    try:
        names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    except OSError as error:
        raise UserError(f"out_dir={directory} can't be read ({error.strerror}); choose another --out_dir.") from error
    if "config.json" not in names:
        if others := [name for name in names if not name.startswith(".")]:
            raise UserError(
                f"out_dir={directory} contains other files ({others[0]} ...) and no config.json; "
                f"choose another --out_dir."
            )
        return None
    config_file = read_config(directory)
    previous = config_file.identity.config
    for name, value in config.decisive().items():
        if previous[name] != value:
            remedy = "use the same flags to resume it, or another --out_dir"
            if name == "num_rounds" and value > previous[name]:
                ended = all((seed / str(previous[name])).exists() for seed in directory.glob("checkpoints/seed*"))
                round = previous[name] if ended else "ROUND"  # seeds may have stopped early
                remedy = f"for more rounds use another --out_dir and --fork_from={directory}@{round}"
            old, new = written(previous[name]), written(value)
            raise UserError(f"out_dir={directory} holds a run with --{name}={old}, not {new}; {remedy}.")
    return config_file


def write_config(
    directory: pathlib.Path,
    config: Config,
    identity: Identity,
    verified: bool,
    model: str,
    attackers: Mapping[str, list[int]] | None = None,
    privacy: Json | None = None,
) -> None:
    """Writes config.json: all flags, the strategy and data that they resolve to, versions, device.

    Args:
      verified: whether the checksums of the data files were confirmed.
      attackers: seed -> the clients that attack; None or {} without an attack.
      privacy: fields of the guarantee of a private run, or None.
    """
    contents = {
        "format": FORMAT,
        "config": dataclasses.asdict(config.resolved()),
        "strategy": identity.strategy,
        "data": identity.data,
        "verified_data": verified,
        "model": model,
        "imports": identity.imports,
        "initial": identity.initial,
        **({"attackers": attackers} if attackers else {}),
        **({"privacy": privacy} if privacy else {}),
        "environment": identity.environment,
        "fingerprint": identity.fingerprint,
        "versions": versions(),
        "device": f"{identity.device} x{jax.device_count()}",
    }
    write_json(directory / "config.json", contents)


def write_summary(directory: pathlib.Path, summary: Json) -> None:
    """Writes summary.json, and the checksums of the finished run."""
    with writing(directory / SUMS):
        (directory / SUMS).unlink(missing_ok=True)
    write_json(directory / "summary.json", summary)
    write_sums(directory, [*(directory / name for name in FILES[:3]), *sorted(directory.glob("clients/*/*.npz"))])


def finished_summary(config: Config) -> Json | None:
    """Returns the summary of a finished run, or None; UserError if it is of another run or has been altered.

    Reads small files only. A run whose imported code has changed counts as unfinished, so that `run` reports it.
    """
    directory = pathlib.Path(config.out_dir) if config.out_dir else default_directory(config)
    if not (directory / "summary.json").exists() or (config_file := load_config(config, directory)) is None:
        return None
    is_same = config_file.identity.imports == plugins.load(config.imports)
    return verified_summary(directory, config_file) if is_same else None


def verified_summary(directory: str | os.PathLike, config_file: ConfigFile | None = None) -> Json:
    """Returns the summary of a finished run, given config.json if it was read; UserError if unfinished or altered."""
    directory = pathlib.Path(directory)
    seeds, path = (config_file or read_config(directory)).config["seeds"], directory / "summary.json"
    if not path.exists():
        raise UserError(f"{directory} has no summary.json: the run is not finished; the same command resumes it.")
    try:
        summary = summary_from_json(parse_json(read_verified(directory, path.name)))
        of_seeds = [each[kind] or {} for each in summary["seeds"].values() for kind in ("last", "final")]
        rows = [row for by_name in (*of_seeds, *summary["over_seeds"].values()) for row in by_name.values()]
        numbers = (number for row in rows for number in row.values())
        if list(summary["seeds"]) != seeds or not all(isinstance(n, (int, float, type(None))) for n in numbers):
            raise ValueError
        return summary
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not this run's summary; remove it, the same command writes it again.") from error


def summary_from_json(summary: Json) -> Json:
    """Returns a summary from JSON data: seeds as integers, NaN and infinities as numbers."""
    summary = _with_numbers(summary)
    return RunSummary(summary | {"seeds": {int(seed): of_seed for seed, of_seed in summary["seeds"].items()}})


def _with_numbers(node: Any) -> Any:
    """Returns JSON data with numbers in place of the texts that `json_value` makes of NaN and infinities."""
    if isinstance(node, dict):
        return {name: _with_numbers(value) for name, value in node.items()}
    return float(node) if isinstance(node, str) and node in ("nan", "inf", "-inf") else node
