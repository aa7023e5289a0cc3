"""Rounds one client at a time: finds which function first made a NaN, and clients that read padding."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, tree
from fedwin.core import Algorithm
from fedwin.engine.check import client_part, server_part
from fedwin.testing.problems import Problem, compile_options

# Places of Client.index beyond the largest client of the problem.
EMPTY = 2


def check_values(p: Problem, algorithm: Algorithm, rounds: int) -> None:
    """Runs rounds client by client and looks at every number that a client or the server returns.

    Every client is run twice: the places of c.index beyond c.size hold other clients' examples the first time and an
    example of NaNs the second. A client that returns something else then reads padding.

    Args:
      p: the problem.
      algorithm: as its builder returns it, before wrappers, so that errors name the user's functions.
      rounds: rounds to run.

    Raises:
      UserError: when a message or the parameters are not finite, or a client reads padding; it names the function.
    """
    p, poison = _with_poison(p)
    run = p.start(algorithm)
    params, stats, state = run.params, run.stats, run.state
    rows = {id: tree.map(lambda leaf: leaf[id], run.table) for id in range(p.setting.num_clients)}
    works = [phase.client and jax.jit(phase.client, compiler_options=compile_options()) for phase in algorithm.phases]
    for round in range(rounds):
        ids = [int(id) for id in p.cohort(round) if id >= 0]
        for phase, work in zip(algorithm.phases, works):
            if work is None:
                params, state, stats = phase.server(params, state, stats, jnp.int32(round))
                continue
            down, updates = phase.broadcast(params, state), []
            for id in ids:
                c = p.client(id, rows[id], round)._replace(stats=stats)
                updates.append(_checked_update(phase, work, down, c, poison))
                rows[id] = rows[id] if tree.is_empty(updates[-1].state) else updates[-1].state
            total = _sum([update.message for update in updates])
            if not tree.is_empty(updates[0].stats):
                weights = [core.weight(p.client(id), algorithm.weighting) for id in ids]
                stats = _mean([update.stats for update in updates], weights)
            params, state = phase.server(params, state, total, jnp.int32(round))
            bad = _not_finite(params)
            if bad is not None:
                raise server_part(phase).slip(f"makes {bad or 'the parameters'} NaN or infinite in round {round}")


def _with_poison(p: Problem) -> tuple[Problem, int]:
    """Returns the problem with an example of NaNs behind all others, n_max raised, and that example's number."""

    def longer(values):
        fill = jnp.nan if jnp.issubdtype(values.dtype, jnp.inexact) else 0
        return jnp.concatenate([values, jnp.full((1, *values.shape[1:]), fill, values.dtype)])

    number = len(jax.tree.leaves(p.store.examples)[0])
    store = p.store._replace(examples=tree.map(longer, p.store.examples))
    return p._replace(store=store, n_max=p.n_max + EMPTY), number


def _checked_update(phase: core.Phase, work, down, c: core.Client, poison: int) -> core.Update:
    """Returns a client's Update, of which nothing may depend on padding."""
    real = np.arange(len(c.index)) < int(c.size)
    update = work(down, c)
    other = work(down, c._replace(index=jnp.where(real, c.index, poison)))
    part, who = client_part(phase), f"for a client with {int(c.size)} examples"
    bad = _not_finite(update.message)
    if bad is not None:
        raise part.slip(f"makes message{bad} NaN or infinite {who} in round {int(c.round)}")
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(update), jax.tree.leaves(other), strict=True):
        if not np.array_equal(x, y, equal_nan=True):
            what = f"reads padding: {jax.tree_util.keystr(path)[1:]} changes with the examples beyond the first c.size"
            raise part.slip(f"{what} of c.index {who}")
    return update


def _not_finite(values) -> str | None:
    """The path of the first leaf with a NaN or inf, None if there is none."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(values):
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and not jnp.isfinite(leaf).all():
            return jax.tree_util.keystr(path)
    return None


def _sum(messages) -> Any:
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *messages)


def _mean(stats, weights) -> Any:
    return _sum([core.mean(one, weight) for one, weight in zip(stats, weights)]).value
