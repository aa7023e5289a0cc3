"""Starting a run from another run's checkpoint."""

import json
import pathlib

import numpy as np

from fedwin import engine
from fedwin.errors import UserError
from fedwin.residence.tables import HostTable, resume, saved_form
from fedwin.runs.checkpoint import Checkpoints, to_host
from fedwin.runs.config import Config


def source(config: Config) -> tuple[pathlib.Path, int]:
    """Returns (directory, round) of --fork_from; raises UserError where a seed's checkpoint is missing or comes too late."""
    directory, at, round = config.fork_from.rpartition("@")
    if not at or not round.isdigit():
        raise UserError(f"fork_from='{config.fork_from}' is not DIR@ROUND.")
    if int(round) >= config.num_rounds:
        raise UserError(
            f"fork_from={config.fork_from}: num_rounds={config.num_rounds} leaves nothing to train; raise --num_rounds."
        )
    for seed in config.seed_list:
        where = pathlib.Path(directory) / "checkpoints" / f"seed_{seed}"
        rounds = Checkpoints(where).rounds()
        if int(round) not in rounds:
            known = ", ".join(map(str, rounds)) or "none"
            raise UserError(f"fork_from: {where} has no checkpoint of round {round}; it has: {known}.")
    return pathlib.Path(directory), int(round)


def fork(
    config: Config, seed: int, run: engine.RunState, table: HostTable | None, clients: int, say
) -> engine.RunState:
    """Starts a fresh RunState from the checkpoint that --fork_from names, state and all.

    A wrapper's own state (a window, an average) starts empty if the other run did not have it, and so do observers
    unless both runs read the same; everything else must be there. Raises UserError where it is not.
    """
    directory, round = source(config)
    leaves, _ = Checkpoints(directory / "checkpoints" / f"seed_{seed}", read_only=True).load(round)
    try:
        observed = json.loads((directory / "config.json").read_text())["config"]["observe"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"fork_from: {directory} has no config.json of a run.") from error
    # Equal names and shapes do not make equal windows: the same ring may serve other sizes.
    same = observed == config.observe
    if not same and run.observers:
        say(f"seed {seed}: the observers begin at round {round}, {directory} read something else")
    taken, used = {}, set()
    for name, value in to_host(saved_form(run, table)).items():
        found = name if name in leaves else _inner_name(name, leaves)
        if _field(name) == "observers" and not same:
            found = None
        elif found is None and _field(name) in ("params", "stats", "table"):
            raise _mismatch(name)
        taken[name] = leaves[found] if found else value
        used.add(found)
    for name in leaves:
        if _field(name) in ("params", "stats", "state", "table") and name not in used:
            raise _mismatch(name)
    taken["key"] = to_host(run)["key"]
    return resume({name: np.asarray(value) for name, value in taken.items()}, run, table, clients)


def _mismatch(name: str) -> UserError:
    return UserError(f"fork_from: '{name}' does not match; fork into the same model and algorithm.")


def _field(name: str) -> str:
    return name.partition(".")[0]


def _inner_name(name: str, leaves) -> str | None:
    # A wrapped algorithm keeps the inner state in field `inner`; without the wrapper it stood one level higher.
    bare = name.replace(".inner", "")
    return bare if bare != name and bare in leaves else None
