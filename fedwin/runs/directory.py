"""The directory of a run: where it is, whose it is, its configuration and fingerprint."""

import dataclasses
import hashlib
import json
import pathlib
import platform
from typing import Any

import flax
import jax
import numpy as np
import optax

import fedwin
from fedwin.data import Dataset
from fedwin.data.feature_digest import feature_digest
from fedwin.data.federation import Federation
from fedwin.errors import UserError
from fedwin.runs.config import Config, default_of
from fedwin.runs.logbook import write_json

# Format of config.json; 1 had no number.
FORMAT = 2


def _from_1(known: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had seeds as text and no imports."""
    config = known["config"] | {"seeds": [int(seed) for seed in known["config"]["seeds"]]}
    return known | {"format": 2, "config": config, "imports": {}}


# Format -> what makes the next one of it.
MIGRATIONS = {1: _from_1}


def default_directory(config: Config) -> pathlib.Path:
    """Returns runs/<dataset>_<algorithm>-<hash>: every configuration has a directory of its own."""
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in f"{config.dataset}_{config.algorithm}")
    return pathlib.Path("runs") / f"{name[:80]}-{_hash(_said(config.decisive()), size=4)}"


def _hash(value, size: int = 8) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=size).hexdigest()


def _said(decisive: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that differ from their defaults, so that a new field leaves old hashes as they are."""
    defaults = {field.name: default_of(field) for field in dataclasses.fields(Config)}
    return {name: value for name, value in decisive.items() if value != defaults.get(name)}


def data_hashes(federations: dict[int, Federation]) -> dict[str, str]:
    """Returns, per seed, a hash of the examples and of who holds which."""
    examples = _examples_hash(next(iter(federations.values())).dataset)
    return {str(seed): _deal_hash(examples.copy(), federation) for seed, federation in federations.items()}


def _examples_hash(dataset: Dataset):
    h = hashlib.blake2b(digest_size=8)
    for split in (dataset.train, dataset.test):
        for name in sorted(split):
            h.update(name.encode() + feature_digest(split[name]))
    return h


def _deal_hash(h, federation: Federation) -> str:
    for part in (federation.partition, federation.validation):
        if part is not None:
            h.update(np.ascontiguousarray(part.order).data)
            h.update(np.ascontiguousarray(part.offset).data)
    return h.hexdigest()


def _device() -> str:
    device = jax.devices()[0]
    return f"{device.platform} {device.device_kind}"


@dataclasses.dataclass(frozen=True)
class Identity:
    """What decides a run's numbers.

    Attributes:
      config: the decisive fields.
      data: seed -> hash of examples and deal.
      jax: version.
      device: platform and kind.
      strategy: how cohorts are mapped.
      imports: imported file or module -> hash of its content.
    """

    config: dict[str, Any]
    data: dict[str, str]
    jax: str
    device: str
    strategy: str
    imports: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """A hash of all that: equal means equal numbers."""
        return _hash([_said(self.config), self.data, self.jax, self.device, self.strategy, self.imports])

    def differences(self, before: "Identity") -> str:
        """Returns what differs from another identity, in words."""
        changed = []
        for name in ("jax", "device", "strategy"):
            then, now = getattr(before, name), getattr(self, name)
            if then != now:
                changed.append(f"{name} {then} then, {now} now")
        for name in sorted(before.imports.keys() | self.imports.keys()):
            if before.imports.get(name) != self.imports.get(name):
                changed.append(f"the code of {name} has changed")
        return "; ".join(changed) or "its configuration was written by another version"


def identity(config: Config, hashes: dict[str, str], strategy: str, imports: dict[str, str]) -> Identity:
    """Returns the identity of a run on this machine."""
    return Identity(_json(config.decisive()), hashes, jax.__version__, _device(), strategy, imports)


def _json(value):
    return json.loads(json.dumps(value))


def create(directory: pathlib.Path) -> None:
    """Creates the run's directory and removes what a killed start left half-written.

    Raises:
      UserError: it can't be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".writable"
        probe.touch()
        probe.unlink()
        for name in [
            *directory.glob(".config.json.*"),
            *directory.glob(".metrics.*"),
            *directory.glob(".summary.json.*"),
        ]:
            name.unlink()
    except OSError as error:
        raise UserError(
            f"out_dir={directory} can't be written ({error.strerror}); choose another --out_dir."
        ) from error


@dataclasses.dataclass(frozen=True)
class Known:
    """What config.json says, in today's format.

    Attributes:
      config: all flags.
      identity: what decided the numbers.
      fingerprint: the one that was written.
    """

    config: dict[str, Any]
    identity: Identity
    fingerprint: str


def read(directory: pathlib.Path) -> Known:
    """Reads config.json, of any format so far.

    Raises:
      UserError: it is not there, can't be read, is no run's or a later version's.
    """
    path = directory / "config.json"
    try:
        known = json.loads(path.read_text())
        number = known.get("format", 1)
        if number > FORMAT:
            raise UserError(f"{path} was written by a later version (format {number}, not {FORMAT}); update fedwin.")
        while number < FORMAT:
            known = MIGRATIONS[number](known)
            number = known["format"]
        config = known["config"]
        device = known["device"].rpartition(" x")[0]
        fields = {field.name: field for field in dataclasses.fields(Config)}
        decisive = {
            name: config.get(name, default_of(field))
            for name, field in fields.items()
            if not field.metadata["operational"]
        }
        before = Identity(
            decisive, known["data"], known["versions"]["jax"], device, known["strategy"], known["imports"]
        )
        return Known(config, before, known["fingerprint"])
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}); choose another --out_dir.") from error
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a run's configuration; choose another --out_dir.") from error


def load(config: Config, directory: pathlib.Path) -> Known | None:
    """Checks that a directory is free or belongs to the same run; returns what its config.json says, or None.

    Raises:
      UserError: it belongs to a run with other flags, or holds other files.
    """
    if not (directory / "config.json").exists():
        try:
            strangers = (
                [p.name for p in directory.iterdir() if not p.name.startswith(".")] if directory.is_dir() else []
            )
        except OSError as error:
            raise UserError(
                f"out_dir={directory} can't be read ({error.strerror}); choose another --out_dir."
            ) from error
        if strangers:
            raise UserError(
                f"out_dir={directory} holds other files ({strangers[0]} ...) and no config.json; choose another --out_dir."
            )
        return None
    known = read(directory)
    before = known.identity.config
    for name, value in _json(config.decisive()).items():
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
    write_json(
        directory / "config.json",
        {
            "format": FORMAT,
            "config": dataclasses.asdict(config),
            "strategy": about.strategy,
            "data": about.data,
            "verified_data": verified,
            "model": model,
            "imports": about.imports,
            "fingerprint": about.fingerprint,
            "versions": versions(),
            "device": f"{about.device} x{jax.local_device_count()}",
        },
    )


def versions() -> dict[str, str]:
    """Returns the versions of what computes a run's numbers."""
    return {
        "fedwin": fedwin.__version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "flax": flax.__version__,
        "optax": optax.__version__,
        "numpy": np.__version__,
    }
