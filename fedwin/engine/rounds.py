"""The state of a run, its initial value, one round, and read-outs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedwin import tree
from fedwin.core import Algorithm, Cohort, Mean, Observer, Variables
from fedwin.data.federation import ShardedStore, Store
from fedwin.engine.cohort import ClientInputs, SharedInputs, client_function, map_cohort, skip_absent
from fedwin.engine.strategy import Strategy
from fedwin.residence.rings import allocate
from fedwin.residence.rows import init_rows
from fedwin.tree import PyTree


class RunState(NamedTuple):
    """The complete state of a run: all that is needed to resume it.

    Attributes:
      params: the server model's parameters.
      stats: its statistics (BatchNorm's), () if it has none.
      state: the algorithm's server state.
      table: the clients' rows, tree of [K, ...].
      observers: name -> state.
      round: completed rounds, int32 [].
      key: the run's base key.
    """

    params: PyTree
    stats: PyTree
    state: PyTree
    table: PyTree
    observers: dict[str, PyTree]
    round: jax.Array
    key: jax.Array


def init(
    algorithm: Algorithm,
    observers: dict[str, Observer],
    model: Variables,
    num_slots: int,
    key,
    init_key,
    window_rounds: int | None = None,
) -> RunState:
    """Returns the state of a run before its first round.

    Args:
      key: base key of everything random inside rounds.
      init_key: key of random initial server and client states.
      window_rounds: windows are offloaded, for dispatches of at most this many rounds; None: they are on the device.
    """
    params, stats = model
    state = algorithm.init(params, init_key)
    # Algorithm.init sees no statistics: averages of models begin with a new network's, which need not be the model's.
    state = tree.map_nodes(lambda average: average._replace(stats=stats), state, Variables)
    watched = algorithm.eval_model(model, state)
    seen = {name: observer.init(watched) for name, observer in observers.items()}
    state, seen = allocate((state, seen), window_rounds)
    table = init_rows(algorithm, params, jnp.arange(num_slots, dtype=jnp.int32), init_key)
    return _copied(RunState(params, stats, state, table, seen, jnp.zeros((), jnp.int32), key))


@jax.jit
def _copied(run):
    """Returns a state in which every leaf has its own buffer: a donated buffer may occur only once in the tree."""
    # A round may change a weak dtype, and would be compiled again.
    return tree.copy(run)


def one_round(
    algorithm: Algorithm,
    observers,
    strategy: Strategy,
    n_max: int,
    run: RunState,
    store: Store | ShardedStore,
    cohort: Cohort,
) -> tuple[RunState, dict[str, Mean]]:
    """Runs one round on a cohort.

    An empty cohort leaves the model, the server's state and the clients' rows as they are, unless the algorithm steps
    without clients; the round counts, and observers follow.

    Returns:
      The state after the round, and metrics: name -> Mean over the cohort.
    """
    params, stats, state = run.params, run.stats, run.state
    # The function for a chunk of one client is not vmapped.
    skips = cohort.size is not None and strategy.chunk == 1
    server_size = None if algorithm.steps_without_clients else cohort.size
    own_state = strategy.everywhere(tree.map(lambda leaf: leaf.at[cohort.slots].get(mode="clip"), run.table))
    round_key = jax.random.fold_in(run.key, run.round)
    client_keys = jax.vmap(lambda id: jax.random.fold_in(round_key, id))(cohort.ids)
    places = cohort._replace(size=None)
    metrics: dict[str, Mean] = {}
    for number, phase in enumerate(algorithm.phases):
        if phase.client is None:
            params, state, stats = _unless_empty(
                server_size, lambda model: phase.server(*model, run.round), (params, state, stats)
            )
            continue
        keys = jax.vmap(lambda key: jax.random.fold_in(key, number))(client_keys)
        shared = SharedInputs(phase.broadcast(params, state), stats, run.round, store)
        own = ClientInputs(places, keys, own_state)
        function = client_function(phase.client, algorithm.weighting, n_max, phase.aggregate is not None)
        summed, new_state = map_cohort(skip_absent(function) if skips else function, shared, own, strategy)
        message, mean_stats, phase_metrics = summed
        if phase.aggregate is not None:
            new_state, messages = new_state
            message = phase.aggregate(messages, cohort.present)
        if not tree.is_empty(new_state):
            own_state = new_state
        if mean_stats is not None:
            stats = _unless_empty(cohort.size, lambda _: mean_stats.value, stats)
        metrics |= phase_metrics
        params, state = _unless_empty(
            server_size, lambda model: phase.server(*model, message, run.round), (params, state)
        )
    # Padding slots are beyond the end and dropped.
    scatter = lambda leaf, new: leaf.at[cohort.slots].set(new.astype(leaf.dtype), mode="drop")
    table = tree.map(scatter, run.table, own_state)
    # Without the barrier, XLA may fuse observers into training and round its last operations differently.
    params, stats, state = lax.optimization_barrier((params, stats, state))
    watched = algorithm.eval_model(Variables(params, stats), state)
    seen = {name: observers[name].update(run.round, watched, s) for name, s in run.observers.items()}
    return RunState(params, stats, state, table, seen, run.round + 1, run.key), metrics


def _unless_empty(size, function, values):
    """Returns function(values), or for an empty cohort the values as they are."""
    if size is None:
        return function(values)

    # lax.cond does not copy large states, such as windows, as jnp.where would.
    def changed(values):
        same = lambda new, old: new if new.dtype == old.dtype else new.astype(old.dtype)
        return jax.tree.map(same, function(values), values)

    return lax.cond(size > 0, changed, lambda values: values, values)


def read_out(algorithm: Algorithm, observers: dict[str, Observer], run: RunState) -> dict[str, Variables]:
    """Returns the models to evaluate, by name; 'model' is the algorithm's own."""
    model = algorithm.eval_model(Variables(run.params, run.stats), run.state)
    out = {"model": model}
    for name, state in run.observers.items():
        out |= observers[name].read(model, state)
    return out
