"""Rounds: the complete state of a run, one round of it, and many rounds in one dispatch."""

from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedwin import tree
from fedwin.core import Algorithm, Observer, Variables
from fedwin.data.store import Store
from fedwin.engine.cohort import Own, Shared, each, work
from fedwin.engine.sampling import check_cohort
from fedwin.engine.strategy import Strategy


class Cohorts(NamedTuple):
    """The clients of the next rounds, int32 [R_max, C] each; -1 in `ids` pads a cohort.

    ids: global numbers; rows: rows of the Store; slots: rows of the client table.
    """

    ids: Any
    rows: Any
    slots: Any


class RunState(NamedTuple):
    """Everything that a run needs to go on: the complete resume point.

    params, stats: the server model; state: the algorithm's; table: tree of [K, ...], the clients' rows;
    observers: name -> state; round: int32 [], completed rounds; key: the run's base key.
    """

    params: Any
    stats: Any
    state: Any
    table: Any
    observers: dict[str, Any]
    round: jax.Array
    key: jax.Array


def init(
    algorithm: Algorithm, observers: dict[str, Observer], model: Variables, num_slots: int, key, init_key
) -> RunState:
    """Returns the run before its first round.

    Args:
      algorithm: what is run; observers: name -> Observer; model: the initial model;
      num_slots: rows of the client table (K if it lives on the device); key: base key of cohorts' work; init_key: draws what states
        begin with.
    """
    params, stats = model
    state = algorithm.init(params, init_key)
    table = init_rows(algorithm, params, jnp.arange(num_slots, dtype=jnp.int32), init_key)
    watched = algorithm.eval_model(model, state)
    seen = {name: observer.init(watched) for name, observer in observers.items()}
    run = RunState(params, stats, state, table, seen, jnp.zeros((), jnp.int32), key)
    # Every leaf gets a buffer of its own: a donated buffer may stand only once in the tree.
    return jax.tree.map(jnp.copy, run)


def init_rows(algorithm: Algorithm, params, ids, init_key):
    """Returns the table rows of clients that have not taken part yet, stacked along axis 0."""
    return jax.jit(jax.vmap(algorithm.client_init, (None, 0, None)))(params, ids, init_key)


def _gather(table, slots):
    return tree.map(lambda leaf: leaf.at[slots].get(mode="clip"), table)


def _scatter(table, slots, rows):
    # Padding slots lie beyond the end and fall off.
    return tree.map(lambda leaf, new: leaf.at[slots].set(new.astype(leaf.dtype), mode="drop"), table, rows)


def one_round(
    algorithm: Algorithm, observers, strategy: Strategy, n_max: int, run: RunState, store: Store, ids, rows, slots
):
    """Runs one round on a cohort (int32 [C] each): (RunState, metrics), metrics name -> Mean over the cohort."""
    params, stats, state = run.params, run.stats, run.state
    own_state = strategy.everywhere(_gather(run.table, slots))
    round_key = jax.random.fold_in(run.key, run.round)
    client_keys = jax.vmap(lambda id: jax.random.fold_in(round_key, id))(jnp.maximum(ids, 0))
    metrics = {}
    for number, phase in enumerate(algorithm.phases):
        if phase.client is None:
            params, state, stats = phase.server(params, state, stats, run.round)
            continue
        keys = jax.vmap(lambda key: jax.random.fold_in(key, number))(client_keys)
        shared = Shared(phase.broadcast(params, state), stats, run.round, store)
        own = Own(ids, rows, slots, keys, own_state)
        (message, mean_stats, phase_metrics), new_state = each(
            work(phase, algorithm.weighting, n_max), shared, own, strategy
        )
        if jax.tree.leaves(new_state):
            own_state = new_state
        if mean_stats:
            stats = mean_stats.value
        metrics |= phase_metrics
        params, state = phase.server(params, state, message, run.round)
    table = _scatter(run.table, slots, own_state)
    # Without the barrier, XLA may fuse observers into training and round its last operations differently.
    params, stats, state = lax.optimization_barrier((params, stats, state))
    watched = algorithm.eval_model(Variables(params, stats), state)
    seen = {name: observers[name].update(run.round, watched, s) for name, s in run.observers.items()}
    return RunState(params, stats, state, table, seen, run.round + 1, run.key), metrics


def read_out(algorithm: Algorithm, observers: dict[str, Observer], run: RunState) -> dict[str, Variables]:
    """Returns the models to evaluate, by name; 'model' is the algorithm's own."""
    model = algorithm.eval_model(Variables(run.params, run.stats), run.state)
    out = {"model": model}
    for name, state in run.observers.items():
        out |= observers[name].read(model, state)
    return out


def make_rounds(
    algorithm: Algorithm,
    observers: dict[str, Observer],
    strategy: Strategy,
    probe: Callable | None = None,
    compiler_options: dict | None = None,
):
    """Returns the compiled loop `dispatch(run, store, cohorts, test, n, flags, n_max) -> (RunState, metrics, probes)`.

    Runs the first n (traced) of the R_max cohorts; `run` is donated and updated in place. One trace serves any n and
    any pattern of evaluations; another is made only for another n_max (static: a size bucket) or another shape.

    Args:
      algorithm, observers, strategy: what runs and how.
      probe: (dict name -> Variables, test) -> tree of scalars, run after the rounds whose flag is set.
      compiler_options: handed to jax.jit.
      flags: bool [R_max], which rounds to evaluate after.
    `dispatch.traces` lists the n_max of every trace so far. The returned metrics and probes have a leading axis R_max; rows not computed are NaN (0 for integers).
    """

    def empty(shapes, rounds):
        return tree.map(
            lambda s: jnp.full((rounds, *s.shape), jnp.nan if jnp.issubdtype(s.dtype, jnp.inexact) else 0, s.dtype),
            shapes,
        )

    traces: list[int] = []

    def rounds(run: RunState, store: Store, cohorts: Cohorts, test, n, flags, n_max: int):
        traces.append(n_max)  # runs once per trace, so that recompilations can be counted
        rounds_max = cohorts.ids.shape[0]
        step = lambda run, c: one_round(algorithm, observers, strategy, n_max, run, store, *c)
        measure = (
            (lambda run, test: probe(read_out(algorithm, observers, run), test)) if probe else (lambda run, test: ())
        )
        first = jax.tree.map(lambda x: x[0], cohorts)
        run_shape, metric_shape = jax.eval_shape(step, run, first)
        probe_shape = jax.eval_shape(measure, run, test)
        kept = strategy.placement(run)

        def body(r, loop):
            run, metrics, probes = loop
            now = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, r, 0, keepdims=False), cohorts)
            run, values = step(run, now)
            run = strategy.constrain(run, kept)
            put = lambda buffer, value: lax.dynamic_update_index_in_dim(buffer, value, r, 0)
            metrics = tree.map(put, metrics, values)
            if probe:
                nothing = lambda run, test: tree.map(
                    lambda s: jnp.full(s.shape, jnp.nan if jnp.issubdtype(s.dtype, jnp.inexact) else 0, s.dtype),
                    probe_shape,
                )
                probes = tree.map(put, probes, lax.cond(flags[r], measure, nothing, run, test))
            return run, metrics, probes

        start = (run, empty(metric_shape, rounds_max), empty(probe_shape, rounds_max))
        return lax.fori_loop(0, n, body, start)

    compiled: list = []

    def dispatch(run: RunState, store: Store, cohorts: Cohorts, test, n, flags, n_max: int):
        if isinstance(cohorts.ids, np.ndarray):
            check_cohort(cohorts.ids)
        if not compiled:
            # On a mesh, outputs must come back placed as inputs are, or the next dispatch would be compiled anew.
            placed = {} if strategy.mesh is None else {"out_shardings": (strategy.placement(run), None, None)}
            options = {"donate_argnums": 0, "static_argnames": "n_max", "compiler_options": compiler_options}
            compiled.append(jax.jit(rounds, **options, **placed))
        return compiled[0](run, store, cohorts, test, n, flags, n_max=n_max)

    dispatch.traces = traces
    dispatch.rounds = rounds  # the function itself, for lowering it by other means (jax.export)
    return dispatch
