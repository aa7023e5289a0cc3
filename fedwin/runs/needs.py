"""All that a run needs of this machine: memory part by part, room on the disk, time. Nothing is written."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedwin import engine, tree
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.runs import strategy_choice
from fedwin.runs.build import Trial
from fedwin.runs.config import Config
from fedwin.runs.estimate import Estimate, estimate, participants, table_slots
from fedwin.runs.groups import groups
from fedwin.runs.lanes import Lanes
from fedwin.runs.memory import Memory, available, free_disk
from fedwin.runs.pace import ROUNDS, SECONDS, Pace, pace_of
from fedwin.runs.program import Program
from fedwin.runs.run import Checked, checked
from fedwin.runs.schedule import CohortSchedule
from fedwin.runs.window_choice import window_plan

GB = 1e9


class Disk(NamedTuple):
    """Bytes of what a run keeps on the disk.

    Attributes:
      parts: part -> bytes.
      free: where it would be written.
    """

    parts: dict[str, int]
    free: int

    def check(self) -> None:
        """Raises UserError unless there is room."""
        needed = sum(self.parts.values())
        if needed > self.free:
            largest = max(self.parts, key=lambda part: self.parts[part])
            remedy = REMEDIES.get(largest, "lower --keep_checkpoints")
            raise UserError(
                f"{largest}: {self.parts[largest] / GB:,.1f} GB of the {needed / GB:,.1f} GB on the disk that this run "
                f"keeps, and {self.free / GB:,.1f} GB are free; {remedy}, or choose another --out_dir."
            )


# What rows of clients and windows in files are called among the parts, and what makes them smaller.
ROWS, WINDOWS = "rows in files", "windows in files"
REMEDIES = {ROWS: "lower --clients_per_round or --num_rounds", WINDOWS: "shorten the windows"}


class Needs(NamedTuple):
    """What a run needs.

    Attributes:
      checked: the run.
      strategy: that it would have.
      memory: bytes by part, activations among them.
      available: what there was before anything was allocated.
      disk: what it keeps.
      pace: what it takes.
    """

    checked: Checked
    strategy: Strategy
    memory: Estimate
    available: Memory
    disk: Disk
    pace: Pace


def needs(
    config: Config,
    *,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    dataset: Any = None,
    model: Any = None,
    say: Callable[[str], None] = lambda line: None,
) -> Needs:
    """Compiles a dispatch of a Config, compares what it needs with what there is, and times a few rounds if it fits.

    Args:
      config: what would be run.
      rounds: how many are timed at most.
      seconds: after which no further round is timed.
      dataset: an object in place of the data set that it names.
      model: an object in place of the model that it names.
      say: prints a line.

    Raises:
      UserError: whatever `fedwin.run` would refuse, or it does not fit.
    """
    found = checked(config, dataset, model)
    trial = found.trial
    strategy = strategy_choice.chosen(trial.config, trial, found.known, say)
    room, disk = available(), disk_of(trial, strategy, found.directory)
    disk.check()
    memory = estimate(trial, strategy)

    def look(program: Program, examples) -> None:
        nonlocal memory
        memory = memory.with_activations(temporaries(program, examples))
        memory.check(room)

    pace = pace_of(trial, strategy, found.bytes_per_client, rounds, seconds, look)
    return Needs(found, strategy, memory, room, disk, pace)


def temporaries(program: Program, examples) -> int:
    """Returns the bytes that a dispatch takes on one device besides its arguments, as XLA says of what it compiled.

    Args:
      program: what is run.
      examples: a residence of the first seed's examples.
    """
    trial, strategy = program.trial, program.strategy
    seed = trial.config.seeds[0]
    schedule = program.schedule(examples)
    slots, _ = program.slots(schedule.longest)
    run = jax.eval_shape(lambda: trial.start(seed, slots, window_rounds=schedule.window_rounds))
    if strategy.mesh is not None:
        placed = lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)
        run = jax.tree.map(placed, run, strategy.placement(run))
    drawn: Any = CohortSchedule(trial.federations[seed], schedule, strategy, seed)
    evaluated_on = program.evaluated_on(seed)
    if program.lanes > 1:
        working = Lanes(program, groups(trial.config)[0])
        run, examples, drawn = jax.eval_shape(working.filled, run), working.examples, working.cohorts
        evaluated_on = working.evaluated_on
    ids, n_max = drawn.ids(0, 1)
    store, rows = examples.take(ids)
    cohorts = engine.Cohorts(ids, rows, np.zeros_like(rows))
    compiled = program.dispatch.compiled(run, store, cohorts, evaluated_on, 1, np.zeros(len(ids), bool), n_max)
    return compiled.memory_analysis().temp_size_in_bytes


def disk_of(trial: Trial, strategy: Strategy, directory: pathlib.Path) -> Disk:
    """Returns what the checkpoints and rows of all seeds take on the disk.

    Args:
      trial: what runs.
      strategy: pads cohorts.
      directory: of the run.
    """
    config = trial.config
    windows = window_plan(trial, config.rounds_per_dispatch)
    filed = windows.rounds if windows.kind == "file" else None
    run = jax.eval_shape(lambda: trial.start(config.seeds[0], 1, window_rounds=filed))
    row, taking_part = tree.nbytes(run.table), participants(trial)
    _, kind = table_slots(trial, strategy, config.rounds_per_dispatch)
    held = {"device": trial.setting.num_clients, "host": taking_part, "file": 0}[kind]
    between = config.checkpoint_every or config.num_rounds
    made = 2 + (config.num_rounds - 1) // between
    kept = min(max(config.keep_checkpoints, 1) + len(config.keep_rounds), made)
    one = tree.nbytes(run._replace(key=(), table=())) + row * held
    parts = {f"{kept * len(config.seeds)} checkpoints": kept * len(config.seeds) * one}
    if kind == "file":
        # A row that a kept checkpoint needs stays when it changes.
        changed = min(between * config.clients_per_round, taking_part)
        parts[ROWS] = len(config.seeds) * row * (taking_part + kept * changed)
    if windows.disk_bytes:
        parts[WINDOWS] = len(config.seeds) * windows.disk_bytes
    return Disk(parts, free_disk(directory))
