"""Starting a run from another run's checkpoint."""

import pathlib

from fedwin import engine
from fedwin.checkpoint import Checkpoints, from_host, to_host
from fedwin.errors import UserError


def fork(text: str, seed: int, run: engine.Run) -> engine.Run:
    """Starts a run from another run's checkpoint `DIR@ROUND`, state and all.

    A wrapper's own state (a window, an average) starts empty if the other run did not have it; everything else must be
    there. Raises UserError where it is not.
    """
    directory, at, round = text.rpartition("@")
    if not at or not round.isdigit():
        raise UserError(f"fork_from='{text}' is not DIR@ROUND.")
    where = pathlib.Path(directory) / "checkpoints" / f"seed_{seed}"
    found = Checkpoints(where)
    if int(round) not in found.rounds():
        known = ", ".join(map(str, found.rounds())) or "none"
        raise UserError(f"fork_from: {where} has no checkpoint of round {round}; it has: {known}.")
    leaves, _ = found.load(int(round))
    found.close()
    fresh = to_host(run)
    taken = {}
    for name, value in fresh.items():
        source = name if name in leaves else _inner_name(name, leaves)
        taken[name] = leaves[source] if source else value
    missing = [n for n in fresh if n.split(".")[0] in ("params", "stats", "table") and n not in leaves]
    used = {name if name in leaves else _inner_name(name, leaves) for name in fresh}
    lost = [n for n in leaves if n.split(".")[0] in ("params", "stats", "table", "state") and n not in used]
    if missing or lost:
        raise UserError(f"fork_from: '{(missing + lost)[0]}' does not match; fork into the same model and algorithm.")
    taken["key"] = fresh["key"]
    return from_host(taken, run)


def _inner_name(name: str, leaves) -> str | None:
    # A wrapped algorithm keeps the inner state in field `inner`; without the wrapper it stood one level higher.
    bare = name.replace(".inner", "")
    return bare if bare != name and bare in leaves else None


