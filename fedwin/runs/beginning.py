"""What a seed begins with: its newest checkpoint, another run's, or a fresh state."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedwin import multi_process
from fedwin.residence.rows import DeviceRows, holds_everyone
from fedwin.residence.windows import table_of
from fedwin.runs.checkpoint import from_leaves
from fedwin.runs.fork import fork_round, forked
from fedwin.runs.logbook import Logbook
from fedwin.runs.program import Program
from fedwin.runs.resume import newest


class Beginning(NamedTuple):
    """A state to train from.

    Attributes:
      run: it, not placed.
      about: what the checkpoint that it comes from says besides; None without one.
      fresh: whether it is the state that every process makes of the seed.
    """

    run: Any
    about: dict[str, Any] | None
    fresh: bool


def beginning(
    program: Program, seed: int, rows, checkpoints, logbook: Logbook | None, fresh, say: Callable
) -> Beginning:
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
    return Beginning(run if kept is found.run else run._replace(table=fresh.table), about, False)


def _whole(program: Program, seed: int, rows, fresh):
    """Returns a fresh state with all the rows that its table has in a dispatch."""
    have = [len(leaf) for leaf in jax.tree.leaves(fresh.table)]
    return fresh if have[:1] in ([], [rows.slots]) else program.with_table(seed, fresh, rows.slots)


def _found(program: Program, seed: int, rows, checkpoints, logbook, fresh, say) -> Beginning:
    trial, config = program.trial, program.trial.config
    if logbook is None:
        return Beginning(fresh, None, True)
    saved = newest(checkpoints, trial.schedule, logbook.lines(seed), seed, fork_round(config))
    if saved is not None:
        leaves, about = saved
        if not holds_everyone(leaves, rows.num_clients):
            fresh = _whole(program, seed, rows, fresh)
        found = Beginning(rows.restored(from_leaves(leaves, rows.template(fresh, leaves)), fresh), about, False)
        if int(found.run.round) < config.num_rounds:
            say(f"seed {seed}: resuming after round {int(found.run.round)}")
    elif config.fork_from:
        found = Beginning(forked(trial, seed, fresh, rows, say), None, False)
    else:
        found = Beginning(_whole(program, seed, rows, fresh), None, True)
        if trial.initial:
            say(f"seed {seed}: begins with {trial.initial[seed]}")
    logbook.truncate_after(seed, int(found.run.round) if saved is not None else -1)
    return found
