"""What decides a run's numbers, and the fingerprint of it."""

import dataclasses
import hashlib
import json
import platform
from typing import Any

import flax
import jax
import numpy as np
import optax

from fedwin import __version__
from fedwin.data import Dataset
from fedwin.data.example_source import feature_digest
from fedwin.data.federation import Federation
from fedwin.runs.config import Config, default_of


def hash_of(value, size: int = 8) -> str:
    """Returns a hash of JSON data, two digits per byte of `size`."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=size).hexdigest()


def jsonable(value):
    """Returns a value as it comes back from a JSON file."""
    return json.loads(json.dumps(value))


def set_fields(decisive: dict[str, Any]) -> dict[str, Any]:
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
      initial: seed -> hash of what it takes from another run (--init_from).
    """

    config: dict[str, Any]
    data: dict[str, str]
    jax: str
    device: str
    strategy: str
    imports: dict[str, str]
    initial: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """A hash of all that: equal means equal numbers."""
        parts = [set_fields(self.config), self.data, self.jax, self.device, self.strategy, self.imports]
        return hash_of([*parts, self.initial] if self.initial else parts)

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


def identity(
    config: Config, hashes: dict[str, str], strategy: str, imports: dict[str, str], initial: dict[str, str]
) -> Identity:
    """Returns the identity of a run on this machine.

    Args:
      config: the flags.
      hashes: of the data, as from `data_hashes`.
      strategy: how cohorts are mapped.
      imports: imported file or module -> hash of its content.
      initial: seed -> hash of what it takes from another run.
    """
    device = jax.devices()[0]
    kind = f"{device.platform} {device.device_kind}"
    return Identity(jsonable(config.decisive()), hashes, jax.__version__, kind, strategy, imports, initial)


def versions() -> dict[str, str]:
    """Returns the versions of what computes a run's numbers."""
    return {
        "fedwin": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "flax": flax.__version__,
        "optax": optax.__version__,
        "numpy": np.__version__,
    }
