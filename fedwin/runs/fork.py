"""Starting a run from another run's checkpoint."""

import functools
import pathlib

import jax
import numpy as np

from fedwin import core, engine
from fedwin.errors import UserError
from fedwin.residence.lazy import Lazy
from fedwin.residence.rows import DeviceRows, holds_everyone
from fedwin.residence.windows import lent_rounds, table_of, unfilled
from fedwin.runs import directory as directories
from fedwin.runs.build import Trial
from fedwin.runs.checkpoint import Checkpoints, from_leaves, named
from fedwin.runs.config import Config
from fedwin.runs.rings import fitted
from fedwin.wrappers import unwrapped_names


def source(config: Config) -> tuple[pathlib.Path, int]:
    """Returns (directory, round) of --fork_from.

    Raises:
      UserError: a seed's checkpoint is missing or comes too late.
    """
    directory, _, round = config.fork_from.rpartition("@")
    if not directory or not (round.isascii() and round.isdecimal()):
        raise UserError(
            f"fork_from='{config.fork_from}' is not DIR@ROUND; name a run's directory and a round, e.g. runs/a@100."
        )
    if int(round) >= config.num_rounds:
        raise UserError(
            f"fork_from={config.fork_from}: num_rounds={config.num_rounds} leaves nothing to train; raise --num_rounds."
        )
    for seed in config.seeds:
        where = pathlib.Path(directory) / "checkpoints" / f"seed_{seed}"
        try:
            rounds = Checkpoints(where).rounds()
        except OSError as error:
            raise UserError(f"fork_from: {where} can't be read ({error.strerror}); check the path.") from error
        if int(round) not in rounds:
            available = ", ".join(map(str, rounds)) or "none"
            raise UserError(f"fork_from: {where} has no checkpoint of round {round}; it has: {available}.")
    return pathlib.Path(directory), int(round)


def fork_round(config: Config) -> int:
    """Returns the round that a run begins at: 0, or that of --fork_from."""
    return int(config.fork_from.rpartition("@")[2]) if config.fork_from else 0


def check_fork(trial: Trial) -> None:
    """Raises UserError where --fork_from cannot be what the run begins with; traces shapes, computes nothing."""
    for seed in trial.config.seeds:
        fresh = jax.eval_shape(functools.partial(trial.start, seed, 1, window_rounds=1))
        blank = jax.tree.map(
            lambda s: s if isinstance(s, Lazy) else np.zeros(s.shape, s.dtype),
            unfilled(fresh._replace(key=jax.ShapeDtypeStruct((2,), np.uint32))),
        )
        own = named(DeviceRows(1).saved(blank))
        for name, value in _taken(trial.config, _saved(trial.config, seed), own).items():
            if _field(name) != "table" and (value.shape != own[name].shape or value.dtype != own[name].dtype):
                raise _mismatch(name)


def forked(trial: Trial, seed: int, run: engine.RunState, rows, say) -> engine.RunState:
    """Starts a fresh state from the checkpoint that --fork_from names, server and client states included.

    A wrapper's own state (a window, an average) begins with the model that is taken if the other run did not have it,
    and so do observers unless both runs read the same; everything else must be there.

    Args:
      trial: what is run.
      seed: whose checkpoint.
      run: a fresh state.
      rows: the residence of its client rows.
      say: prints a line.

    Raises:
      UserError: model, algorithm or federation differ.
    """
    config = trial.config
    directory, round = source(config)
    if run.observers and not _same_observers(config, directory):
        say(f"seed {seed}: the observers begin at round {round}; {directory} observed something else")
    leaves = _saved(config, seed)

    def found(run: engine.RunState) -> engine.RunState:
        taken = _taken(config, leaves, named(rows.saved(run)))
        return from_leaves(taken, rows.template(run, taken))

    same = found(run)
    # An average that is new here begins with the model of the fork, not with that of round 0.
    replaced = isinstance(table_of(rows), DeviceRows) and holds_everyone(leaves, trial.setting.num_clients)
    model = core.Variables(same.params, same.stats)
    run = trial.start(seed, 1 if replaced else rows.slots, model, window_rounds=lent_rounds(run))
    return rows.restored(found(run), run)


def _same_observers(config: Config, directory: pathlib.Path) -> bool:
    # Equal names and shapes do not make equal windows: the same ring may serve other sizes.
    return directories.read(directory).config["observe"] == config.observe


def _saved(config: Config, seed: int) -> dict[str, np.ndarray]:
    """Returns the leaves of the checkpoint that --fork_from names."""
    directory, round = source(config)
    leaves, _ = Checkpoints(directory / "checkpoints" / f"seed_{seed}").load(round)
    _check_rows(directory, leaves)
    return leaves


def _taken(config: Config, leaves: dict[str, np.ndarray], own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the leaves that a forked run begins with.

    Args:
      config: the flags.
      leaves: of the checkpoint.
      own: of the run's fresh state, in a checkpoint's form.
    """
    directory, _ = source(config)
    same = _same_observers(config, directory)
    taken: dict[str, np.ndarray] = {}
    used = set()
    for name, value in own.items():
        # A wrapper that the other run did not have added its own state around the algorithm's.
        found = next((known for known in (name, *unwrapped_names(name)) if known in leaves), None)
        if _field(name) == "observers" and not same:
            found = None
        elif found is None and _field(name) in ("params", "stats", "table"):
            raise _mismatch(name)
        taken[name] = leaves[found] if found else value
        used.add(found)
    for name in leaves:
        if _field(name) in ("params", "stats", "state", "table") and name not in used:
            raise _mismatch(name)
    taken = _with_own_rings(config, directory, taken, own)
    taken["key"] = own["key"]
    return taken


def _with_own_rings(config: Config, directory: pathlib.Path, taken: dict[str, np.ndarray], own: dict[str, np.ndarray]):
    """Returns the leaves with rings of the fork's lengths, where nothing but the number of rounds makes them differ."""
    said = directories.read(directory).config
    same = {"observers": said["observe"] == config.observe, "state": said["algorithm"] == config.algorithm}
    return fitted(taken, {name: value.shape for name, value in own.items() if same.get(_field(name))})


def _check_rows(directory: pathlib.Path, leaves: dict[str, np.ndarray]) -> None:
    """Raises UserError where clients' rows would begin with another model than the forked run did."""
    began = directories.read(directory).config.get("init_from")
    if began and "table.ids" in leaves and len(leaves["table.ids"]) < leaves["table.total"]:
        raise UserError(
            f"fork_from: {directory} began with init_from={began}, and its checkpoint has no rows of clients that had "
            f"not taken part; run it with --table=device to fork it."
        )


def _mismatch(name: str) -> UserError:
    return UserError(f"fork_from: '{name}' does not match; fork into the same model and algorithm.")


def _field(name: str) -> str:
    return name.partition(".")[0]
