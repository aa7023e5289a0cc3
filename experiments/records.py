"""Records: configuration, evaluations and summary of a run, from its directory or from a packed one.

A packed run is a .tar.xz file of the run's config.json, metrics.jsonl and summary.json, and SHA256SUMS of these.
"""

import dataclasses
import hashlib
import io
import json
import lzma
import os
import pathlib
import tarfile
import tempfile
from collections.abc import Iterable
from typing import Any

from fedwin.errors import UserError
from fedwin.files import SUMS, parse_json, read_bytes, read_verified, replace_bytes, writing
from fedwin.runs.config import Config, default_of
from fedwin.runs.directory import FOLDERS, ConfigFile, read_config, verified_summary
from fedwin.runs.metrics_log import Line, read_lines

# JSON data of config.json, summary.json and figures.
Json = dict[str, Any]

SUFFIX = ".tar.xz"
# Name of the trained model in metrics.jsonl, next to those of the read-outs.
MODEL = "model"
CONFIG, METRICS, SUMMARY = "config.json", "metrics.jsonl", "summary.json"
# Field of Config -> its default.
DEFAULTS: Json = {name: default_of(field) for name, field in Config.__dataclass_fields__.items()}


@dataclasses.dataclass(frozen=True)
class Record:
    """One run, of one or several seeds.

    Attributes:
      about: contents of config.json: config, fingerprint, versions, device, strategy. A packed run's 'config' has the
        fields that differ from the defaults, and 'stored' has its machine, its data and the day.
      lines: evaluations, as in metrics.jsonl.
      summary: contents of summary.json; None: the run has not finished.
      directory: directory of the run; None: it is packed.
    """

    about: Json
    lines: list[Line]
    summary: Json | None = None
    directory: pathlib.Path | None = None

    @property
    def config(self) -> Json:
        """All fields of Config; others, of another version, are left out."""
        return {name: self.about["config"].get(name, default) for name, default in DEFAULTS.items()}

    @property
    def label(self) -> str:
        """Algorithm and wrappers."""
        return " ".join([self.config["algorithm"], *self.config["wrap"]])

    @property
    def name(self) -> str:
        """Name of the directory, or the label of a packed run."""
        return self.label if self.directory is None else self.directory.resolve().name

    @property
    def stored(self) -> Json:
        """Machine, data and day of a packed run; {} for a directory."""
        return self.about.get("stored", {})

    @property
    def seeds(self) -> list[int]:
        """The seeds with at least one evaluation."""
        return sorted({line["seed"] for line in self.lines})

    @property
    def seconds(self) -> dict[int, float]:
        """Seed -> seconds of training, of a finished run."""
        return {seed: round(each["wall_seconds"], 1) for seed, each in self._ended().items() if "wall_seconds" in each}

    @property
    def diverged(self) -> dict[int, int]:
        """Seed -> round in which it diverged."""
        ended = self._ended().items()
        return {seed: each["diverged_at"] for seed, each in ended if each.get("diverged_at") is not None}

    @property
    def stopped(self) -> set[int]:
        """The seeds that were stopped early; they are not known for a packed run."""
        return {seed for seed, each in self._ended().items() if "stopped_at" in each}

    def _ended(self) -> dict[int, Json]:
        return {int(seed): each for seed, each in (self.summary or {"seeds": {}})["seeds"].items()}


def read(path: str | pathlib.Path) -> Record:
    """Reads a run, from its directory or packed; raises UserError if there is none, or it is damaged or altered."""
    path = pathlib.Path(path)
    if os.path.isdir(path):
        found = _config_file(path)
        summary = verified_summary(path, found) if (path / SUMMARY).is_file() else None
        return Record(found.contents, read_lines(path / METRICS), summary, path)
    if not path.name.endswith(SUFFIX):
        raise UserError(f"{path}: neither the directory of a run nor a packed run (*{SUFFIX}); check the path.")
    try:
        contents = read_bytes(path)
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}); check the path.") from error
    try:
        packed = tarfile.open(fileobj=io.BytesIO(lzma.decompress(contents)))
        with tempfile.TemporaryDirectory() as folder:
            # Not extractall, whose filter Python 3.11 before 3.11.4 lacks: files of the run alone, by their last names.
            for member in packed:
                if member.isfile() and (file := packed.extractfile(member)) is not None:
                    with writing(folder):
                        pathlib.Path(folder, pathlib.Path(member.name).name).write_bytes(file.read())
            parsed = lambda name: parse_json(read_verified(pathlib.Path(folder), name))
            summary = parsed(SUMMARY) if pathlib.Path(folder, SUMMARY).is_file() else None
            return Record(parsed(CONFIG), read_lines(pathlib.Path(folder, METRICS)), summary)
    except (FileNotFoundError, EOFError, ValueError, KeyError, tarfile.TarError, lzma.LZMAError, UserError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}); restore it.") from error


def megabytes(lines: Iterable[Line]) -> dict[int, float]:
    """Returns seed -> megabytes that clients received and sent in all of its rounds, those of its last line."""
    return {line["seed"]: (line["bytes_down"] + line["bytes_up"]) / 1e6 for line in lines}


def config_of(directory: str | pathlib.Path) -> Json:
    """Returns the fields of Config of a run directory; raises UserError if it is not one."""
    return _config_file(directory).config


def _config_file(directory: str | pathlib.Path) -> ConfigFile:
    if not os.path.isfile(os.path.join(directory, CONFIG)):
        raise UserError(f"{directory}: this is not the directory of a run; `fedwin list runs` shows them.")
    return read_config(pathlib.Path(directory))


def run_directories(folder: pathlib.Path, links: bool = True) -> list[pathlib.Path]:
    """Returns the directories of all runs below a folder, which may be one itself, each once; through `links`, too."""
    directories, seen = [], set[str]()
    for place, subfolders, files in os.walk(folder, followlinks=links):
        # A link may lead to a run that is listed under its own name, or upwards.
        linked = {name for name in subfolders if os.path.islink(os.path.join(place, name))}
        subfolders[:] = [*sorted({*subfolders} - linked), *sorted(linked)]
        if (real := os.path.realpath(place)) in seen:
            subfolders.clear()
        elif CONFIG in files:
            directories.append(pathlib.Path(place))
            subfolders[:] = [name for name in subfolders if name not in FOLDERS]  # others may hold runs
        seen.add(real)
    return sorted(directories)


def write(path: pathlib.Path, record: Record) -> None:
    """Packs a record; equal records give equal bytes."""
    text = lambda value: json.dumps(value, separators=(",", ":")) + "\n"
    files = {CONFIG: text(record.about), METRICS: "".join(map(text, record.lines))}
    files |= {} if record.summary is None else {SUMMARY: text(record.summary)}
    sums = [f"{hashlib.sha256(contents.encode()).hexdigest()}  {name}\n" for name, contents in files.items()]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9) as packed:
        for name, contents in (files | {SUMS: "".join(sums)}).items():
            member = tarfile.TarInfo(name)
            member.size = len(contents.encode())
            packed.addfile(member, io.BytesIO(contents.encode()))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, buffer.getvalue())
