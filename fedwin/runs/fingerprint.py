"""Identity and fingerprint of a run: hashes of everything that decides its results."""

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
from fedwin.runs.config import Config, implied_of


def hash_of(value: object, size: int = 8) -> str:
    """Returns the hash of JSON data in hexadecimal; `size` is its number of bytes."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=size).hexdigest()


def jsonable(value: Any) -> Any:
    """Returns a value as it comes back from a JSON file."""
    return json.loads(json.dumps(value))


def set_fields(decisive: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that differ from their implied values, so that a new field does not change old hashes."""
    implied = {field.name: implied_of(field) for field in dataclasses.fields(Config)}
    return {name: value for name, value in decisive.items() if value != implied.get(name)}


def data_hashes(federations: dict[int, Federation]) -> dict[str, str]:
    """Returns seed -> hash of the examples and of their partition among clients."""
    examples = _examples_hash(next(iter(federations.values())).dataset)
    return {str(seed): _partition_hash(examples.copy(), federation) for seed, federation in federations.items()}


def _examples_hash(dataset: Dataset):
    h = hashlib.blake2b(digest_size=8)
    for split in (dataset.train, dataset.test):
        for name in sorted(split):
            h.update(name.encode() + feature_digest(split[name]))
    return h


def _partition_hash(h, federation: Federation) -> str:
    for part in (federation.partition, federation.validation):
        if part is not None:
            h.update(np.ascontiguousarray(part.order).data)
            h.update(np.ascontiguousarray(part.offset).data)
    return h.hexdigest()


@dataclasses.dataclass(frozen=True)
class Identity:
    """Everything that decides a run's results.

    Attributes:
      config: the decisive fields.
      data: seed -> hash of examples and partition.
      jax: version of jax.
      device: platform and kind of the device.
      strategy: how cohorts are executed.
      imports: imported file or module -> hash of its content.
      initial: seed -> hash of the parameters from another run (--init_from).
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
        """A hash of the identity: runs with the same fingerprint have the same results."""
        parts = [set_fields(self.config), self.data, self.jax, self.device, self.strategy, self.imports]
        return hash_of([*parts, self.initial] if self.initial else parts)

    def differences(self, previous: "Identity") -> str:
        """Returns a message that names the differences from a previous identity."""
        changed = []
        for name in ("jax", "device", "strategy"):
            then, now = getattr(previous, name), getattr(self, name)
            if then != now:
                changed.append(f"{name} was {then} and is {now}")
        for name in sorted(previous.imports.keys() | self.imports.keys()):
            if previous.imports.get(name) != self.imports.get(name):
                changed.append(f"the code of {name} has changed")
        return "; ".join(changed) or "its configuration was written by another version"


def identity(
    config: Config, hashes: dict[str, str], strategy: str, imports: dict[str, str], initial: dict[str, str]
) -> Identity:
    """Returns the identity of a run on this machine.

    Args:
      config: the flags.
      hashes: seed -> hash of the data, from `data_hashes`.
      strategy: how cohorts are executed.
      imports: imported file or module -> hash of its content.
      initial: seed -> hash of the parameters from another run.
    """
    device = jax.devices()[0]
    kind = f"{device.platform} {device.device_kind}"
    return Identity(jsonable(config.decisive()), hashes, jax.__version__, kind, strategy, imports, initial)


def versions() -> dict[str, str]:
    """Returns name -> version of fedwin, Python and the libraries that compute."""
    return {
        "fedwin": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "flax": flax.__version__,
        "optax": optax.__version__,
        "numpy": np.__version__,
    }
