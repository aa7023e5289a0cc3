"""Which checkpoint a seed resumes from: the newest that is whole, its own, and covered by evaluations on the disk."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedwin import core, engine, multi_process
from fedwin.errors import UserError
from fedwin.residence.blockwise import Lazy
from fedwin.residence.client_table import DeviceRows, holds_everyone
from fedwin.residence.offloaded_windows import lent_rounds, table_of, unfilled
from fedwin.runs import directory as directories
from fedwin.runs.checkpoint import Checkpoints, from_leaves, named
from fedwin.runs.checkpoint_format import fitted
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import LinesHash, MetricsLog
from fedwin.runs.prepare import PreparedRun
from fedwin.runs.program import Program
from fedwin.runs.schedule import Schedule
from fedwin.runs.warm_start import fork_round, fork_source
from fedwin.wrappers import unwrapped_names


def missing(schedule: Schedule, lines: list[dict[str, Any]], start: int, round: int) -> list[int]:
    """Returns the rounds up to `round` whose evaluations the schedule demands and `lines` lack.

    Args:
      schedule: when evaluations happen.
      lines: what metrics.jsonl has of the seed.
      start: the round that the run began at (0, or a fork's).
      round: the last that counts.
    """
    there = {line["round"] for line in lines}
    wanted = (r for r in range(start, round + 1) if r == start or schedule.evaluated(r))
    return [r for r in wanted if r not in there]


def newest(
    checkpoints: Checkpoints, schedule: Schedule, lines: list[dict[str, Any]], seed: int, start: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Returns (leaves, extra) of the checkpoint to resume from; None for a run without any.

    Args:
      checkpoints: the seed's.
      schedule: when evaluations happen.
      lines: what metrics.jsonl has of the seed.
      seed: whose run.
      start: the round that the run began at.

    Raises:
      UserError: there are checkpoints and none can be used.
    """

    def check(round: int, about: dict[str, Any]) -> None:
        where = checkpoints.shown / str(round)
        if about.get("seed", seed) != seed:
            raise UserError(f"checkpoint {where} belongs to seed {about['seed']}; delete it.")
        if about.get("round", round) != round:
            raise UserError(f"checkpoint {where} is of round {about['round']}; delete it.")
        lacking = missing(schedule, lines, start, round)
        if lacking:
            raise UserError(
                f"metrics.jsonl lacks {len(lacking)} of seed {seed}'s evaluations up to round {round} (the first of "
                f"round {lacking[0]}); restore the file, or choose another --out_dir."
            )
        counted = about.get("evaluations")
        if counted is not None and counted != LinesHash(line for line in lines if line["round"] <= round).value:
            raise UserError(
                f"metrics.jsonl has been altered: seed {seed}'s evaluations up to round {round} are not those of the "
                f"run; restore the file, or choose another --out_dir."
            )

    return checkpoints.latest(check)


class StartingState(NamedTuple):
    """A state to train from.

    Attributes:
      run: it, not placed.
      about: what the checkpoint that it comes from says besides; None without one.
      fresh: whether it is the state that every process makes of the seed.
    """

    run: Any
    about: dict[str, Any] | None
    fresh: bool


def starting_state(
    program: Program, seed: int, rows, checkpoints, logbook: MetricsLog | None, fresh, say: Callable
) -> StartingState:
    """Returns what a seed begins with, the same in all processes; removes evaluations that come after it.

    Args:
      program: what is run.
      seed: whose state.
      rows: the residence of the clients' rows.
      checkpoints: the seed's.
      logbook: None in a process that has no run directory.
      fresh: its state before the first round; one row of its table is enough.
      say: prints a line.

    Raises:
      UserError: there are checkpoints and none can be used, or the other run does not fit.
    """
    if multi_process.count() > 1:
        fresh = _whole(program, seed, rows, fresh)
    found = multi_process.agreed(lambda: _found(program, seed, rows, checkpoints, logbook, fresh, say))
    if multi_process.count() == 1:
        return found
    about, is_fresh = multi_process.said_by_first((found.about, found.fresh))
    if is_fresh:
        return found
    # Rows that are not on the devices stay with their owner.
    kept = found.run if isinstance(table_of(rows), DeviceRows) else found.run._replace(table=())
    run = multi_process.from_first(kept)
    return StartingState(run if kept is found.run else run._replace(table=fresh.table), about, False)


def _whole(program: Program, seed: int, rows, fresh):
    """Returns a fresh state with all the rows that its table has in a dispatch."""
    have = [len(leaf) for leaf in jax.tree.leaves(fresh.table)]
    return fresh if have[:1] in ([], [rows.slots]) else program.with_table(seed, fresh, rows.slots)


def _found(program: Program, seed: int, rows, checkpoints, logbook, fresh, say) -> StartingState:
    prepared, config = program.prepared, program.prepared.config
    if logbook is None:
        return StartingState(fresh, None, True)
    saved = newest(checkpoints, prepared.schedule, logbook.lines(seed), seed, fork_round(config))
    if saved is not None:
        leaves, about = saved
        if not holds_everyone(leaves, rows.num_clients):
            fresh = _whole(program, seed, rows, fresh)
        found = StartingState(rows.restored(from_leaves(leaves, rows.template(fresh, leaves)), fresh), about, False)
        if int(found.run.round) < config.num_rounds:
            say(f"seed {seed}: resuming after round {int(found.run.round)}")
    elif config.fork_from:
        found = StartingState(forked(prepared, seed, fresh, rows, say), None, False)
    else:
        found = StartingState(_whole(program, seed, rows, fresh), None, True)
        if prepared.initial:
            say(f"seed {seed}: begins with {prepared.initial[seed]}")
    logbook.truncate_after(seed, int(found.run.round) if saved is not None else -1)
    return found


def check_fork(prepared: PreparedRun) -> None:
    """Raises UserError where --fork_from cannot be what the run begins with; traces shapes, computes nothing."""
    for seed in prepared.config.seeds:
        fresh = jax.eval_shape(functools.partial(prepared.start, seed, 1, window_rounds=1))
        blank = jax.tree.map(
            lambda s: s if isinstance(s, Lazy) else np.zeros(s.shape, s.dtype),
            unfilled(fresh._replace(key=jax.ShapeDtypeStruct((2,), np.uint32))),
        )
        own = named(DeviceRows(1).saved(blank))
        for name, value in _taken(prepared.config, _saved(prepared.config, seed), own).items():
            if _field(name) != "table" and (value.shape != own[name].shape or value.dtype != own[name].dtype):
                raise _mismatch(name)


def forked(prepared: PreparedRun, seed: int, run: engine.RunState, rows, say) -> engine.RunState:
    """Starts a fresh state from the checkpoint that --fork_from names, server and client states included.

    A wrapper's own state (a window, an average) begins with the model that is taken if the other run did not have it,
    and so do observers unless both runs read the same; everything else must be there.

    Args:
      prepared: the prepared run.
      seed: whose checkpoint.
      run: a fresh state.
      rows: the residence of its client rows.
      say: prints a line.

    Raises:
      UserError: model, algorithm or federation differ.
    """
    config = prepared.config
    directory, round = fork_source(config)
    if run.observers and not _same_observers(config, directory):
        say(f"seed {seed}: the observers begin at round {round}; {directory} observed something else")
    leaves = _saved(config, seed)

    def found(run: engine.RunState) -> engine.RunState:
        taken = _taken(config, leaves, named(rows.saved(run)))
        return from_leaves(taken, rows.template(run, taken))

    same = found(run)
    # An average that is new here begins with the model of the fork, not with that of round 0.
    replaced = isinstance(table_of(rows), DeviceRows) and holds_everyone(leaves, prepared.setting.num_clients)
    model = core.Variables(same.params, same.stats)
    run = prepared.start(seed, 1 if replaced else rows.slots, model, window_rounds=lent_rounds(run))
    return rows.restored(found(run), run)


def _same_observers(config: Config, directory: pathlib.Path) -> bool:
    # Equal names and shapes do not make equal windows: the same ring may serve other sizes.
    return directories.read(directory).config["observe"] == config.observe


def _saved(config: Config, seed: int) -> dict[str, np.ndarray]:
    """Returns the leaves of the checkpoint that --fork_from names."""
    directory, round = fork_source(config)
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
    directory, _ = fork_source(config)
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
