"""Interfaces of federated algorithms: Algorithm, Phase, Client, Cohort, Update, Observer, and weighted means.

An algorithm is a NamedTuple of pure functions. In a round the engine computes for every phase

    down = broadcast(params, state)
    update_i = client(down, client_i)                                  for every client i of the cohort
    params, state = server(params, state, sum_i update_i.message, round)

`fedwin.core.algorithm` builds an Algorithm of one phase with FedAvg's defaults.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import tree
from fedwin.errors import UserError
from fedwin.tree import PyTree

__all__ = [
    "Algorithm",
    "Client",
    "Cohort",
    "DerivedFromStep",
    "Mean",
    "MeanStep",
    "Observer",
    "PartialStep",
    "Phase",
    "PyTree",
    "Setting",
    "Update",
    "Variables",
    "aggregation_weight",
    "algorithm",
    "map_mean_steps",
    "mean",
    "mean_step",
    "mean_step_of",
    "nothing_resettable",
    "on_inner_row",
    "transmit_everything",
    "with_mean_step",
]

# One array of a client, or those of a cohort.
Array = jax.Array | np.ndarray


class Variables(NamedTuple):
    """The variables of a model: parameters and statistics.

    Attributes:
      params: the trained parameters, a pytree.
      stats: the statistics (BatchNorm's running mean and variance), () for a model without any.
    """

    params: PyTree
    stats: PyTree = ()


class Client(NamedTuple):
    """The view of one client; the engine maps a phase's `client` function over a cohort of them.

    Attributes:
      id: number of the client among all clients, int32 [].
      slot: its row in the client table of this dispatch, int32 [].
      size: number of examples N_i, int32 []; 0 marks padding.
      weight: share p_i = N_i / sum_j N_j over all clients, float []. `aggregation_weight` returns the weight in the
        mean over a cohort.
      key: PRNG key derived from (seed, round, client, phase).
      round: completed rounds before this one, int32 [].
      index: positions of its examples in `examples`, int32 [n_max]; the first `size` are valid.
      info: its row of Federation.info (class counts, domain, ...), a pytree.
      state: its row of the client table, a pytree; () for stateless clients.
      stats: the broadcast model statistics, a pytree.
      examples: feature -> array [N, ...], one store shared by all clients; vmap does not map over it.
      importance: factor in its aggregation weight for unequal inclusion probabilities, float []; None for 1.
      work: share of the round's local steps that the client takes, float32 []; None for all of them.
      staleness: server steps between the start and the arrival of an asynchronous client, int32 []; None for 0.
    """

    id: Array
    slot: Array
    size: jax.Array
    weight: jax.Array
    key: jax.Array
    round: jax.Array
    index: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name
    info: PyTree
    state: PyTree
    stats: PyTree
    examples: PyTree
    importance: Array | None = None
    work: Array | None = None
    staleness: Array | None = None


class Cohort(NamedTuple):
    """The clients of a round as arrays [C]; [R, C] for R rounds, [R, seeds, C] for vmapped seeds.

    Attributes:
      ids: number of each client, int32; 0 in places without a client.
      present: which places have a client that takes part, bool; False for padding and for clients that drop out.
      rows: rows of the store, int32.
      slots: rows of the client table, int32; beyond its end in places without a client.
      importance: factors in the aggregation weights, float; None for 1.
      work: shares of the local steps that clients take, float32; None for all of them.
      size: number of clients that take part, int32 []; None if all cohorts have the same size. Cohorts may be empty
        only if this is set.
      staleness: server steps since asynchronous clients started, int32; None for 0.
    """

    ids: Array
    present: Array
    rows: Array
    slots: Array
    importance: Array | None = None
    work: Array | None = None
    size: Array | None = None
    staleness: Array | None = None

    @classmethod
    def of(cls, ids, present=None, **fields) -> "Cohort":
        """Returns a cohort of clients whose rows in the store and in the table are their own numbers.

        Args:
          ids: numbers of the clients.
          present: which places have a client; None: all.
          **fields: importance, work, size, staleness; rows and slots if these differ from `ids`.

        Example:
          >>> Cohort.of([3, 7, 0], [True, True, False]).slots.tolist()[:2]
          [3, 7]
        """
        present = np.ones(np.shape(ids), bool) if present is None else np.asarray(present)
        ids = np.where(present, ids, 0).astype(np.int32)
        slots = np.where(present, ids, np.iinfo(np.int32).max).astype(np.int32)
        return cls(**({"ids": ids, "present": present, "rows": ids, "slots": slots} | fields))


class Mean(NamedTuple):
    """A weighted mean before the division. A sum of Means is a Mean, so a cohort can be summed in any grouping.

        value = sum_i w_i x_i / sum_i w_i

    Attributes:
      total: sum of w_i x_i, a pytree.
      weight: sum of w_i, [].
    """

    total: PyTree
    weight: jax.Array

    @property
    def value(self) -> PyTree:
        """The mean: total / weight, in the dtype of each leaf."""
        return tree.map(lambda x: x / self.weight.astype(x.dtype), self.total)


class MeanStep(Mean):
    """The Mean of the clients' steps y_i - x from the server model.

    Wrappers find it in a message by its type, under any key, to clip, perturb or average it.
    """

    __slots__ = ()


class PartialStep(MeanStep):
    """A MeanStep of a part of the parameters that differs from round to round; it is 0 elsewhere.

    Wrappers that store what they do not send, or that keep a part on the client, reject it.
    """

    __slots__ = ()


class DerivedFromStep(NamedTuple):
    """A part of a message that is computed from the client's step y_i - x alone, such as a sum of signs.

    A server that receives the step can compute this part itself, so it does not count as communication. A wrapper that
    bounds the step also bounds this part. Parts of a message without this mark may hold anything.

    Attributes:
      value: the part, a pytree.
    """

    value: PyTree


def mean(values: PyTree, weight) -> Mean:
    """Returns one client's contribution (w_i x_i, w_i) to a weighted mean.

    Args:
      values: x_i, a pytree of arrays or numbers; booleans and integers become floats.
      weight: w_i, [].
    """
    is_float = lambda x: jnp.issubdtype(jnp.result_type(x), jnp.inexact)
    floats = tree.map(lambda x: jnp.asarray(x, None if is_float(x) else float), values)
    return Mean(tree.map(lambda x: x * jnp.asarray(weight).astype(x.dtype), floats), jnp.asarray(weight, float))


def mean_step(step: PyTree, weight) -> MeanStep:
    """Returns one client's contribution to the cohort's mean step; the step is y_i - x, its weight w_i []."""
    return MeanStep(*mean(step, weight))


def mean_step_of(message: PyTree) -> MeanStep | None:
    """Returns the mean step of a message, or None if the message contains none or several."""
    steps = tree.nodes(message, MeanStep)
    return steps[0] if len(steps) == 1 else None


def with_mean_step(message: PyTree, step: Mean) -> PyTree:
    """Returns a message with its only mean step replaced by another one."""
    return map_mean_steps(lambda _: MeanStep(*step), message)


def map_mean_steps(function: Callable, message: PyTree) -> PyTree:
    """Returns a message with a function applied to each of its mean steps; other parts do not change."""
    return tree.map_nodes(function, message, MeanStep)


class Update(NamedTuple):
    """The result of one client's computation.

    Attributes:
      message: a pytree that is summed over the cohort; the server sees only the sum, unless Phase.aggregate is set.
      state: replaces the row of the client table; () leaves the row unchanged.
      stats: new model statistics, which the engine averages with Algorithm.weighting.
      metrics: name -> Mean, summed over the cohort; runs record 'loss'.
    """

    message: PyTree
    state: PyTree = ()
    stats: PyTree = ()
    metrics: dict[str, Mean] = {}


def transmit_everything(down, message):
    """Returns (down, message): the default of Phase.wire, for protocols that transmit both completely."""
    return down, message


class Phase(NamedTuple):
    """One round trip between server and clients, or a step of only the server.

    Attributes:
      broadcast: (params, state) -> down, a pytree that every client of the cohort receives.
      client: (down, Client) -> Update; None for a step of only the server.
      server: (params, state, total, round) -> (params, state), where total is the sum of the messages, or the result of
        `aggregate`; without a client, (params, state, stats, round) -> (params, state, stats).
      wire: (down, message) -> (down, up), the parts that the protocol transmits, for the communication count.
      aggregate: (messages [C, ...], present bool [C]) -> total, for a server that needs each message and not only their
        sum; padding is not present, and its messages are zeros. None: messages are summed, never stacked.
    """

    broadcast: Callable
    client: Callable | None
    server: Callable
    wire: Callable = transmit_everything
    aggregate: Callable | None = None


def nothing_resettable(node) -> bool:
    """Returns False: the default of Algorithm.resettable."""
    return False


class Algorithm(NamedTuple):
    """A federated algorithm.

    Attributes:
      init: (params, key) -> server state; the state does not contain the parameters (as in optax).
      phases: the phases of a round, run in this order; most algorithms have one, MIME has two.
      client_init: (initial params, id, key) -> the client's row of the client table; () for stateless clients.
      eval_model: (Variables, state) -> Variables that are evaluated, observed and released.
      weighting: weights of the mean over a cohort S, 'samples' (N_i / sum_S N_j) or 'uniform' (1 / |S|).
      resettable: node of the server state -> whether it holds decaying moments (Adam's), which wrappers may reset.
      client_model: (Variables that are evaluated, the client's row of the client table) -> the client's personal model,
        Variables of the same structure; None if clients have no models of their own.
      steps_without_clients: whether the server also steps in a round without clients, in which means are NaN; by
        default, such a round changes nothing. It never changes the model statistics.
    """

    init: Callable
    phases: tuple[Phase, ...]
    client_init: Callable
    eval_model: Callable
    weighting: str = "samples"
    resettable: Callable[[Any], bool] = nothing_resettable
    client_model: Callable | None = None
    steps_without_clients: bool = False


class Observer(NamedTuple):
    """Follows the sequence of server models without changing it.

    Attributes:
      init: Variables -> observer state.
      update: (round, Variables, state) -> state; called after each round with the number of rounds completed before it.
      read: (Variables, state) -> dict of read-outs, name -> Variables to evaluate.
    """

    init: Callable
    update: Callable
    read: Callable


def with_client_phases(change: Callable, algorithm: Algorithm) -> Algorithm:
    """Returns an algorithm with `change`, Phase -> Phase, applied to the phases in which clients take part."""
    return algorithm._replace(phases=tuple(change(phase) if phase.client else phase for phase in algorithm.phases))


def on_inner_row(client: Callable, down: PyTree, c: Client, **changes) -> tuple[Update, PyTree]:
    """Runs the client function of a wrapped algorithm on the row `c.state.inner`.

    Args:
      client: its Phase.client.
      down: its broadcast.
      c: a client whose row has the algorithm's row as `inner`.
      **changes: other fields of the client that the algorithm sees.

    Returns:
      (its Update, the algorithm's new row, which is the old one if the update has none).
    """
    update = client(down, c._replace(state=c.state.inner, **changes))
    return update, c.state.inner if tree.is_empty(update.state) else update.state


class Setting(NamedTuple):
    """Properties of the run that builders of algorithms, wrappers and observers may depend on.

    Attributes:
      num_clients: K, number of all clients.
      clients_per_round: |S|, number of clients in a cohort; the rounded mean if it varies.
      num_rounds: T, configured number of rounds.
      init_fn: key -> params, the model's initializer (for FedHBM's random anchors).
      model: fedwin.models.Model, for algorithms that need parts of the network (FedFA's last layer).
      sampling: fedwin.sampling.Sampler, which draws the cohorts; None stands for uniform sampling.
    """

    num_clients: int
    clients_per_round: int
    num_rounds: int
    init_fn: Callable | None = None
    model: Any = None
    sampling: Any = None

    @property
    def key(self):
        """Not available: one compiled program serves all seeds, so builders have no key.

        Raises:
          UserError: always.
        """
        raise UserError(
            "an algorithm, wrapper or observer reads setting.key, but one compiled program serves all seeds: what "
            "differs by seed belongs in its state; take the key as a further argument, init(params, key) or "
            "client_init(params, id, key)."
        )

    @property
    def most_rounds(self) -> int | None:
        """Upper bound on the number of rounds, or None if unknown (in a FedJAX program)."""
        return self.num_rounds

    @property
    def participation(self) -> float:
        """Participation ratio C = E|S| / K."""
        return self.clients_per_round / self.num_clients if self.sampling is None else self.sampling.participation


def stats_shapes(setting: Setting) -> PyTree:
    """Returns the shapes of the model's statistics (BatchNorm's); () without a model, empty if it has none."""
    return () if setting.model is None else jax.eval_shape(lambda: setting.model.init(jax.random.key(0)).stats)


def aggregation_weight(c: Client, weighting: str) -> jax.Array:
    """Returns a client's weight in the mean over a cohort before normalization, [].

    In contrast, Client.weight is the share of all examples. The result includes the factor Client.importance, if set.

    Args:
      weighting: 'samples' (N_i) or 'uniform' (1; 0 for padding).
    """
    if weighting not in ("samples", "uniform"):
        raise ValueError(f"weighting must be 'samples' or 'uniform', not {weighting!r}")
    weight = c.size if weighting == "samples" else (c.size > 0).astype(jnp.int32)
    return weight if c.importance is None else weight * c.importance


@dataclasses.dataclass(frozen=True)
class IgnoresKey:
    """Wraps a function that takes no key; a key passed as the last argument is dropped.

    Attributes:
      function: the function as its author wrote it.
    """

    function: Callable

    def __call__(self, *args):
        return self.function(*args[:-1])


def with_key_argument(function: Callable, count: int) -> Callable:
    """Returns a function of `count` arguments, the last one a PRNG key, whether `function` takes the key or not.

    A function whose signature cannot be inspected is assumed to take no key.

    Args:
      function: takes `count` arguments, or `count` - 1 if it needs no key.
      count: number of arguments including the key.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return IgnoresKey(function)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_key = sum(p.default is p.empty for p in positional) >= count
    return function if takes_key else IgnoresKey(function)


def algorithm(
    client,
    server,
    broadcast=lambda params, state: params,
    init=lambda params: (),
    client_init=lambda params, id: (),
    eval_model=lambda model, state: model,
    weighting="samples",
    wire=transmit_everything,
    resettable=nothing_resettable,
    client_model=None,
    aggregate=None,
) -> Algorithm:
    """Builds an algorithm of one phase; the defaults are FedAvg's (broadcast of the parameters, no state).

    All seeds share one compiled program, so everything that differs by seed must be drawn from the key that `init` and
    `client_init` may take.

    >>> fedavg = algorithm(
    ...     client=lambda params, c: Update(mean_step(tree.zeros_like(params), c.size)),
    ...     server=lambda params, state, total, round: (tree.add(params, total.value), state),
    ... )
    >>> len(fedavg.phases), fedavg.weighting
    (1, 'samples')

    Args:
      client, server, broadcast, wire, aggregate: as in Phase.
      init: (params) or (params, key) -> server state.
      client_init: (params, id) or (params, id, key) -> row of the client table.
      eval_model, weighting, resettable, client_model: as in Algorithm.
    """
    return Algorithm(
        init=with_key_argument(init, 2),
        phases=(Phase(broadcast, client, server, wire, aggregate),),
        client_init=with_key_argument(client_init, 3),
        eval_model=eval_model,
        weighting=weighting,
        resettable=resettable,
        client_model=client_model,
    )
