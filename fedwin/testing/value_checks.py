"""Runs rounds one client at a time to find the function that first returns a NaN, and clients that read padding."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, tree
from fedwin.core import Algorithm
from fedwin.engine.algorithm_check import client_part, server_part
from fedwin.testing.problems import Problem, compile_options

# Additional places of Client.index, beyond the largest client of the problem.
EMPTY = 2


def check_values(p: Problem, algorithm: Algorithm, rounds: int) -> None:
    """Runs rounds client by client and checks every number that a client or the server returns.

    Every client runs three times. The places of c.index beyond c.size contain other clients' examples the first time
    and an example of NaNs the second time, when c.slot also differs; the third time there are more such places. A
    client whose results differ (the third time, by more than rounding) reads padding or c.slot.

    Args:
      algorithm: as its builder returns it, before wrappers, so that errors name the user's functions.

    Raises:
      UserError: when a message or the parameters are not finite, a client reads padding or c.slot, or the server's step
        is a sum over clients; it names the function.
    """
    p, poison = _with_poison(p)
    run = p.start(algorithm)
    model = run.params, run.state, run.stats
    rows = {id: tree.map(lambda leaf: leaf[id], run.table) for id in range(p.setting.num_clients)}
    clients = [phase.client and jax.jit(phase.client, compiler_options=compile_options()) for phase in algorithm.phases]
    _check_sums(p, algorithm, lambda ids: _checked_round(p, algorithm, clients, poison, dict(rows), ids, model, 0)[0])
    for round in range(rounds):
        model = _checked_round(p, algorithm, clients, poison, rows, p.ids(round), model, round)


def _check_sums(p: Problem, algorithm: Algorithm, parameters_after: Callable) -> None:
    """Checks that the first step with three equal clients is not three times that with one."""
    one, three = (tree.sub(parameters_after((p.ids(0)[0],) * count), p.variables.params) for count in (1, 3))
    length = float(tree.norm(one))
    if length > 0 and float(tree.norm(tree.axpy(-3, one, three))) < 1e-3 * length:
        phase = next(phase for phase in reversed(algorithm.phases) if phase.client)
        raise server_part(phase).error(
            "adds up what the clients send, so that three equal clients make its step three times as long: send "
            "core.mean_step(step, c.size), or core.mean, and take total[...].value"
        )


def _checked_round(p: Problem, algorithm: Algorithm, clients, poison: int, rows, ids, model, round: int):
    """Returns (params, state, stats) after a round of the clients `ids`, whose rows it updates."""
    params, state, stats = model
    for phase, client in zip(algorithm.phases, clients):
        if client is None:
            params, state, stats = phase.server(params, state, stats, jnp.int32(round))
            continue
        down, updates = phase.broadcast(params, state), {}
        for id in dict.fromkeys(ids):
            c = p.client(id, rows[id], round)._replace(stats=stats)
            updates[id] = _checked_update(phase, client, down, c, poison)
            rows[id] = rows[id] if tree.is_empty(updates[id].state) else updates[id].state
        total = _total(phase, [updates[id].message for id in ids])
        if not tree.is_empty(updates[ids[0]].stats):
            weights = {id: core.aggregation_weight(p.client(id), algorithm.weighting) for id in ids}
            stats = _sum([core.mean(updates[id].stats, weight) for id, weight in weights.items()]).value
        params, state = phase.server(params, state, total, jnp.int32(round))
        path = _not_finite(params)
        if path is not None:
            raise server_part(phase).error(f"makes {path or 'the parameters'} NaN or infinite in round {round}")
    return params, state, stats


def _with_poison(p: Problem) -> tuple[Problem, int]:
    """Returns the problem with an example of NaNs after all others and a larger n_max, and that example's number."""

    def longer(values):
        fill = jnp.nan if jnp.issubdtype(values.dtype, jnp.inexact) else 0
        return jnp.concatenate([values, jnp.full((1, *values.shape[1:]), fill, values.dtype)])

    number = len(jax.tree.leaves(p.store.examples)[0])
    store = p.store._replace(examples=tree.map(longer, p.store.examples))
    return p._replace(store=store, n_max=p.n_max + EMPTY), number


def _checked_update(phase: core.Phase, client, down, c: core.Client, poison: int) -> core.Update:
    """Returns a client's Update, after checking that it is finite and independent of padding."""
    update, index = client(down, c), jnp.where(np.arange(len(c.index)) < c.size, c.index, poison)
    poisoned = client(down, c._replace(index=index, slot=c.slot + 1))
    longer = client(down, c._replace(index=jnp.pad(index, (0, EMPTY), constant_values=poison)))
    function, scope = client_part(phase), f"for a client with {int(c.size)} examples"
    path = _not_finite(update.message)
    if path is not None:
        raise function.error(f"makes message{path} NaN or infinite {scope} in round {int(c.round)}")
    others = zip(jax.tree.leaves(poisoned), jax.tree.leaves(longer), strict=True)
    for (leaf_path, x), (y, z) in zip(jax.tree_util.tree_leaves_with_path(update), others, strict=True):
        changed = f"{jax.tree_util.keystr(leaf_path)[1:]} changes {scope}"
        if not np.array_equal(x, y, equal_nan=True):
            raise function.error(f"reads padding or c.slot: {changed} with c.index beyond c.size, or with its slot")
        if not np.allclose(x, z, rtol=1e-4, atol=1e-6, equal_nan=True):  # sums over more places are rounded differently
            raise function.error(f"reads len(c.index) or depends on earlier calls (np.random, a counter): {changed}")
    return update


def _not_finite(values) -> str | None:
    """Returns the path of the first leaf with a NaN or an infinity, None if there is none."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(values):
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and not jnp.isfinite(leaf).all():
            return jax.tree_util.keystr(path)
    return None


def _total(phase: core.Phase, messages) -> Any:
    if phase.aggregate is None:
        return _sum(messages)
    return phase.aggregate(tree.map(lambda *leaves: jnp.stack(leaves), *messages), jnp.ones(len(messages), bool))


def _sum(messages) -> Any:
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *messages)
