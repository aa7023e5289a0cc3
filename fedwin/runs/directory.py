"""The directory of a run: whose it is, its fingerprint, its summary."""

import dataclasses
import hashlib
import json
import pathlib
import platform
from typing import Any

import jax
import numpy as np

from fedwin.data import Dataset
from fedwin.data.feature_digest import feature_digest
from fedwin.data.federation import Federation
from fedwin.errors import UserError
from fedwin.runs.config import Config
from fedwin.runs.logbook import write_json
from fedwin.runs.loop import Result


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


def fingerprint(config: Config, hashes: dict[str, str], strategy: str) -> str:
    """Returns a hash of configuration, data splits, jax version, device and strategy: equal means equal numbers."""
    device = jax.devices()[0]
    known = [config.decisive(), hashes, jax.__version__, device.platform, device.device_kind, strategy]
    return hashlib.blake2b(json.dumps(known, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def claim(directory: pathlib.Path) -> None:
    """Creates the run's directory; raises UserError if it can't be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".writable"
        probe.touch()
        probe.unlink()
        for name in list(directory.glob(".config.json.*")) + list(directory.glob(".metrics.*")):
            name.unlink()  # a start that was killed while it wrote
    except OSError as error:
        raise UserError(
            f"out_dir={directory} can't be written ({error.strerror}); choose another --out_dir."
        ) from error


def known(config: Config, directory: pathlib.Path) -> dict[str, Any] | None:
    """Checks that a directory is free or belongs to the same run; returns what its config.json says, or None.

    Raises UserError if it belongs to a run with other flags, or holds other files.
    """
    path = directory / "config.json"
    if not path.exists():
        strangers = [p.name for p in directory.iterdir() if not p.name.startswith(".")] if directory.is_dir() else []
        if strangers:
            raise UserError(
                f"out_dir={directory} holds other files ({strangers[0]} ...) and no config.json; choose another --out_dir."
            )
        return None
    try:
        known = json.loads(path.read_text())
        before = known["config"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a run's configuration; choose another --out_dir.") from error
    now = json.loads(json.dumps(config.decisive()))
    for name, value in now.items():
        if before.get(name) != value:
            raise UserError(
                f"out_dir={directory} holds a run with --{name}={before.get(name)}, not {value}; "
                f"use the same flags to go on, or another --out_dir."
            )
    return known


def write_config(
    directory: pathlib.Path,
    config: Config,
    strategy: str,
    hashes: dict[str, str],
    mark: str,
    verified: bool,
    model: str,
) -> None:
    """Writes config.json: all flags, what they were resolved to, versions, device."""
    device = jax.devices()[0]
    write_json(
        directory / "config.json",
        {
            "config": dataclasses.asdict(config),
            "strategy": strategy,
            "data": hashes,
            "verified_data": verified,
            "model": model,
            "fingerprint": mark,
            "versions": versions(),
            "device": f"{device.platform} {device.device_kind} x{jax.local_device_count()}",
        },
    )


def versions() -> dict[str, str]:
    import flax
    import optax

    from fedwin import __version__

    return {
        "fedwin": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "flax": flax.__version__,
        "optax": optax.__version__,
        "numpy": np.__version__,
    }


def summarise(
    config: Config, results: dict[int, Result], lines: list[dict[str, Any]], mark: str, traces: int
) -> dict[str, Any]:
    """Returns per seed and over seeds: the mean of the last N rounds per read-out, the final round, time, rounds/s."""
    seeds = {}
    for seed, result in results.items():
        mine = [line for line in lines if line["seed"] == seed]
        last = [line for line in mine if line["round"] > config.num_rounds - max(config.final_evals, 1)] or mine[-1:]
        names = [name for name, value in mine[-1].items() if isinstance(value, dict)]
        metrics = [m for m in mine[-1]["model"]]
        seeds[seed] = {
            "final_round": mine[-1]["round"],
            "diverged_at": result.diverged_at,
            "wall_seconds": result.seconds,
            # A fork begins where the other run was.
            "rounds_per_second": (mine[-1]["round"] - mine[0]["round"]) / result.seconds if result.seconds else None,
            "last": {
                name: {m: float(np.mean([float(line[name][m]) for line in last])) for m in metrics} for name in names
            },
            "final": {name: {m: float(mine[-1][name][m]) for m in metrics} for name in names},
        }
    first = next(iter(seeds.values()))
    over = {
        name: {
            metric: {
                "mean": float(np.mean([s["last"][name][metric] for s in seeds.values()])),
                "std": float(np.std([s["last"][name][metric] for s in seeds.values()], ddof=1))
                if len(seeds) > 1
                else None,
            }
            for metric in first["last"][name]
        }
        for name in first["last"]
    }
    return {
        "algorithm": config.algorithm,
        "num_rounds": config.num_rounds,
        "last_rounds": config.final_evals,
        "fingerprint": mark,
        "traces": traces,
        "over_seeds": over,
        "seeds": seeds,
    }
