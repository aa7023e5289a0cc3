"""Restores the state that a seed starts from: its newest usable checkpoint, a fork's source, or a fresh state."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from fedwin import core, engine, multi_process
from fedwin.errors import UserError
from fedwin.residence.blockwise import Lazy
from fedwin.residence.rings import client_table_of, offloaded_rounds, without_vectors
from fedwin.residence.rows import ClientTable, DeviceTable
from fedwin.residence.saved import has_all_clients
from fedwin.runs import directory as directories
from fedwin.runs.checkpoint import Checkpoints, Extra, Leaves, from_leaves, named_leaves, with_resized_rings
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import Line, MetricsLog
from fedwin.runs.prepare import PreparedRun
from fedwin.runs.program import Program
from fedwin.runs.schedule import Schedule
from fedwin.runs.warm_start import fork_round, fork_source
from fedwin.wrappers import unwrapped_names


class StartingState(NamedTuple):
    """A state to train from.

    Attributes:
      run: the state, not placed on devices.
      extra: JSON data of the checkpoint that it was restored from; None without one.
      fresh: whether it is a fresh state, which every process computes from the seed.
    """

    run: engine.RunState
    extra: Extra | None
    fresh: bool


def starting_state(
    program: Program,
    seed: int,
    rows: ClientTable,
    checkpoints: Checkpoints,
    metrics_log: MetricsLog | None,
    fresh: engine.RunState,
    say: Callable[[str], None],
) -> StartingState:
    """Returns the state that a seed starts from, the same in all processes; removes evaluations of later rounds.

    Args:
      program: the compiled program.
      seed: the seed.
      rows: its client table.
      checkpoints: its checkpoints.
      metrics_log: file of evaluations; None in a process that does not write.
      fresh: its state before the first round; one row of its table is enough.
      say: prints a line.

    Raises:
      UserError: there are checkpoints and none can be used, or --fork_from does not fit.
    """
    if multi_process.count() > 1:
        fresh = _with_all_slots(program, seed, rows, fresh)
    start = multi_process.run_on_all(lambda: _local_start(program, seed, rows, checkpoints, metrics_log, fresh, say))
    if multi_process.count() == 1:
        return start
    extra, is_fresh = multi_process.broadcast_object((start.extra, start.fresh))
    if is_fresh:
        return start
    # Rows that are not on the devices stay in process 0.
    with_rows = isinstance(client_table_of(rows), DeviceTable)
    run = multi_process.broadcast_arrays(start.run if with_rows else start.run._replace(table=()))
    return StartingState(run if with_rows else run._replace(table=fresh.table), extra, False)


def _with_all_slots(program: Program, seed: int, rows: ClientTable, fresh: engine.RunState) -> engine.RunState:
    """Returns a fresh state whose table has as many rows as in a dispatch."""
    lengths = [len(leaf) for leaf in jax.tree.leaves(fresh.table)]
    return fresh if lengths[:1] in ([], [rows.slots]) else program.with_table(seed, fresh, rows.slots)


def _local_start(
    program: Program,
    seed: int,
    rows: ClientTable,
    checkpoints: Checkpoints,
    metrics_log: MetricsLog | None,
    fresh: engine.RunState,
    say: Callable[[str], None],
) -> StartingState:
    """Returns the state that this process would start from; see `starting_state`."""
    prepared, config = program.prepared, program.prepared.config
    if metrics_log is None:
        return StartingState(fresh, None, True)
    saved = newest_checkpoint(checkpoints, prepared.schedule, metrics_log.lines(seed), [seed], fork_round(config))
    if saved is not None:
        leaves, extra = saved
        if not has_all_clients(leaves, rows.num_clients):
            fresh = _with_all_slots(program, seed, rows, fresh)
        run = rows.restore(from_leaves(leaves, rows.template(fresh, leaves)), fresh)
        start = StartingState(run, extra, False)
        if int(run.round) < config.num_rounds and extra["stopped_at"] is None:
            say(f"seed {seed}: resuming after round {int(run.round)}")
    elif config.fork_from:
        start = StartingState(forked(prepared, seed, fresh, rows, say), None, False)
    else:
        start = StartingState(_with_all_slots(program, seed, rows, fresh), None, True)
        if prepared.initial:
            say(f"seed {seed}: starts with {prepared.initial[seed]}")
    metrics_log.truncate_after(seed, int(start.run.round) if saved is not None else -1)
    return start


def missing_evaluations(schedule: Schedule, lines: list[Line], start: int, round: int) -> list[int]:
    """Returns the rounds up to `round` that the schedule evaluates and that are missing in `lines`.

    Args:
      schedule: when the run evaluates.
      lines: the seed's lines of metrics.jsonl.
      start: first round of the run: 0, or the round of a fork.
      round: last round to check.
    """
    written = {line["round"] for line in lines}
    evaluated = (r for r in range(start, round + 1) if r == start or schedule.evaluated(r))
    return [r for r in evaluated if r not in written]


def newest_checkpoint(
    checkpoints: Checkpoints, schedule: Schedule, lines: list[Line], seeds: Sequence[int], start: int
) -> tuple[Leaves, Extra] | None:
    """Returns (leaves, extra) of the checkpoint to resume from: the newest that is intact and has all its evaluations.

    Args:
      checkpoints: of a seed, or of a group of vmapped seeds.
      schedule: when the run evaluates.
      lines: all lines of metrics.jsonl.
      seeds: the seed, or the group.
      start: first round of the run: 0, or the round of a fork.

    Returns:
      None if there are no checkpoints.

    Raises:
      UserError: there are checkpoints and none can be used.
    """

    def check(round: int, extra: Extra) -> None:
        path = checkpoints.path / str(round)
        of_seeds = extra.get("of_seed") or {str(extra.get("seed")): extra}
        if set(of_seeds) != set(map(str, seeds)):
            raise UserError(f"checkpoint {path} belongs to seed {', '.join(of_seeds)}; delete it.")
        if extra["round"] != round:
            raise UserError(f"checkpoint {path} is of round {extra['round']}; delete it.")
        for seed in seeds:
            ends = (of_seeds[str(seed)].get(name) for name in ("stopped_at", "diverged_at"))
            end = min([round, *(end for end in ends if end is not None)])
            missing = missing_evaluations(schedule, [line for line in lines if line["seed"] == seed], start, end)
            if missing:
                raise UserError(
                    f"metrics.jsonl lacks {len(missing)} of seed {seed}'s evaluations up to round {end} (the first of "
                    f"round {missing[0]}); restore the file, or choose another --out_dir."
                )

    return checkpoints.latest(check)


def check_fork(prepared: PreparedRun) -> None:
    """Raises UserError if the run can't start from --fork_from; traces shapes, computes nothing."""
    if prepared.privacy is not None:
        _check_same_privacy(prepared.config, fork_source(prepared.config).directory)
    for seed in prepared.config.seeds:
        fresh = jax.eval_shape(functools.partial(prepared.start, seed, 1, window_rounds=1))
        blank = jax.tree.map(
            lambda s: s if isinstance(s, Lazy) else np.zeros(s.shape, s.dtype),
            without_vectors(fresh._replace(key=jax.ShapeDtypeStruct((2,), np.uint32))),
        )
        own = DeviceTable(1).checkpoint_form(blank)
        shapes = named_leaves(own)
        for name, value in _Fork(prepared.config, seed).leaves(own).items():
            if _field(name) != "table" and (value.shape, value.dtype) != (shapes[name].shape, shapes[name].dtype):
                raise _mismatch(name)


def forked(
    prepared: PreparedRun, seed: int, run: engine.RunState, rows: ClientTable, say: Callable[[str], None]
) -> engine.RunState:
    """Returns a state that continues the checkpoint of --fork_from, including server and client states.

    The state of a wrapper (a window, an average) that the other run did not have starts from the checkpoint's model,
    and so do observers unless both runs have the same; everything else must be in the checkpoint.

    Args:
      prepared: the prepared run.
      seed: the seed.
      run: a fresh state.
      rows: its client table.
      say: prints a line.

    Raises:
      UserError: model, algorithm or federation differ.
    """
    fork = _Fork(prepared.config, seed)
    if run.observers and not fork.same_observers:
        source = fork.source
        say(f"seed {seed}: the observers start at round {source.round}; {source.directory} has other observers")

    def continued(run: engine.RunState) -> engine.RunState:
        own = fork.leaves(rows.checkpoint_form(run))
        return from_leaves(own, rows.template(run, own))

    first = continued(run)
    # An average that only this run has starts with the checkpoint's model, not with that of round 0.
    replaced = isinstance(client_table_of(rows), DeviceTable) and has_all_clients(
        fork.saved, prepared.setting.num_clients
    )
    model = core.Variables(first.params, first.stats)
    run = prepared.start(seed, 1 if replaced else rows.slots, model, window_rounds=offloaded_rounds(run))
    return rows.restore(continued(run), run)


def _check_same_privacy(config: Config, directory: pathlib.Path) -> None:
    """Raises UserError if the rounds before a fork did not have the guarantee that the run accounts for."""
    own, other = dataclasses.asdict(config), directories.read_config(directory).config
    private = lambda fields: [text for text in fields["wrap"] if text.partition(":")[0] == "dp"]
    fields = ("sampling", "clients_per_round", "num_clients", "dropout")
    if private(own) != private(other) or any(own[name] != other[name] for name in fields):
        raise UserError(
            f"fork_from={config.fork_from}: dp accounts for all rounds, and {directory} was not trained with the same "
            f"--wrap=dp and --sampling; fork from a run that was."
        )


class _Fork:
    """The checkpoint of --fork_from for one seed.

    Args:
      config: the flags.
      seed: the seed.

    Attributes:
      source: names the other run and its round.
      saved: name -> leaf of its checkpoint.
      same_observers: whether both runs have the same observers.
    """

    def __init__(self, config: Config, seed: int):
        self.source = fork_source(config)
        self.saved, _ = self.source.checkpoints("fork_from", seed).load(self.source.round)
        other = directories.read_config(self.source.directory).config
        # Names and shapes do not identify a window: the same ring may serve several lengths.
        self.same_observers = other["observe"] == config.observe
        self.same_algorithm = other["algorithm"] == config.algorithm
        init_from = other.get("init_from")
        if init_from and "table.ids" in self.saved and len(self.saved["table.ids"]) < self.saved["table.total"]:
            raise UserError(
                f"fork_from: {self.source.directory} started with init_from={init_from}, and its checkpoint has no "
                f"rows of clients that had not taken part; run it with --table=device to fork it."
            )

    def leaves(self, own: engine.RunState) -> Leaves:
        """Returns the leaves of the forked run's first state.

        Args:
          own: the run's fresh state, in the form of a checkpoint.
        """
        forked: Leaves = {}
        used = set()
        for name, value in (fresh := named_leaves(own)).items():
            # A wrapper that the other run did not have wraps its own state around the algorithm's.
            match = next((found for found in (name, *unwrapped_names(name)) if found in self.saved), None)
            if _field(name) == "observers" and not self.same_observers:
                match = None
            elif match is None and _field(name) in ("params", "stats", "table"):
                raise _mismatch(name)
            forked[name] = self.saved[match] if match else value
            used.add(match)
        for name in self.saved:
            if _field(name) in ("params", "stats", "state", "table") and name not in used:
                raise _mismatch(name)
        resizable = {"observers": own.observers if self.same_observers else ()}
        resizable["state"] = own.state if self.same_algorithm else ()
        return with_resized_rings(forked, resizable) | {"key": fresh["key"]}


def _mismatch(name: str) -> UserError:
    return UserError(f"fork_from: '{name}' does not match; fork into the same model and algorithm.")


def _field(name: str) -> str:
    return name.partition(".")[0]
