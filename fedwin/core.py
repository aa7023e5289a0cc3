"""Functions whose last argument, a PRNG key, their author may leave out."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import tree
from fedwin.errors import UserError, deprecated


@dataclasses.dataclass(frozen=True)
class WithoutKey:
    """A function that does not ask for the key, which is called with one as its last argument."""

    function: Callable

    def __call__(self, *args):
        return self.function(*args[:-1])


def taking_key(function: Callable, count: int) -> Callable:
    """Returns a function of `count` arguments, the last of them a key; `function` may take one less.

    What cannot tell its parameters is taken to want no key.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return WithoutKey(function)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    asks = sum(p.default is p.empty for p in positional) >= count
    return function if asks else WithoutKey(function)


PyTree = Any


class Mean(NamedTuple):
    """A weighted mean before the division: a sum that carries its weight, so that sums of it are sums.

        value = sum_i w_i x_i / sum_i w_i

    Attributes:
      total: sum of w_i x_i.
      weight: sum of w_i, [].
    """

    total: PyTree
    weight: jax.Array

    @property
    def value(self) -> PyTree:
        return tree.map(lambda x: x / self.weight.astype(x.dtype), self.total)


def mean(values: PyTree, weight) -> Mean:
    """Returns values as one client's part of a weighted mean.

    Args:
      values: x_i.
      weight: w_i, [].
    """
    return Mean(tree.map(lambda x: x * jnp.asarray(weight).astype(x.dtype), values), jnp.asarray(weight, float))


class MeanStep(Mean):
    """A Mean of the clients' steps y_i - x from the server model: what wrappers bound or average, under any key."""

    __slots__ = ()


class DerivedFromStep(NamedTuple):
    """A part of a message that follows from the client's step y_i - x alone, such as a plain sum of steps or of signs.

    A wrapper that bounds the step has bounded it, too; whatever else is in a message may hold anything.

    Attributes:
      value: the part.
    """

    value: PyTree


def mean_step(step: PyTree, weight) -> MeanStep:
    """Returns a client's step as its part of the cohort's mean step.

    Args:
      step: y_i - x.
      weight: w_i, [].
    """
    return MeanStep(*mean(step, weight))


def _is_mean_step(x) -> bool:
    return isinstance(x, MeanStep)


def mean_step_of(message: PyTree) -> MeanStep | None:
    """Returns the one mean step in a message, or None where there is none or more than one."""
    found = [x for x in jax.tree.leaves(message, is_leaf=_is_mean_step) if _is_mean_step(x)]
    return found[0] if len(found) == 1 else None


def with_mean_step(message: PyTree, step: Mean) -> PyTree:
    """Returns the message with its mean step replaced."""
    return jax.tree.map(lambda x: MeanStep(*step) if _is_mean_step(x) else x, message, is_leaf=_is_mean_step)


__all__ = [
    "Algorithm",
    "Client",
    "Mean",
    "MeanStep",
    "Observer",
    "DerivedFromStep",
    "Phase",
    "PyTree",
    "Setting",
    "Update",
    "Variables",
    "algorithm",
    "all_on_the_wire",
    "mean",
    "mean_step",
    "mean_step_of",
    "nothing_resettable",
    "weight",
    "with_mean_step",
]


class Variables(NamedTuple):
    """A model: what is trained, and what travels beside it.

    Attributes:
      params: the trained parameters.
      stats: the statistics (BatchNorm's), () without.
    """

    params: PyTree
    stats: PyTree = ()


class Client(NamedTuple):
    """What one client sees. The engine maps over a cohort of them.

    Attributes:
      id: global number, int32 [].
      slot: its row of this dispatch's table, int32 [].
      size: number of examples, int32 [], 0 marks padding.
      weight: N_i / sum of all N, float [].
      key: PRNG key of (seed, round, client, phase).
      round: completed rounds before this one, int32 [].
      index: its rows of `examples`, int32 [n_max], the first `size` of them valid.
      info: its row of Federation.info (class counts, domain, ...).
      state: its row of the client table.
      stats: the broadcast model statistics.
      examples: feature -> array [N, ...], one flat store shared by all clients, never mapped.
    """

    id: jax.Array
    slot: jax.Array
    size: jax.Array
    weight: jax.Array
    key: jax.Array
    round: jax.Array
    index: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name
    info: PyTree
    state: PyTree
    stats: PyTree
    examples: PyTree


class Update(NamedTuple):
    """What one client returns.

    Attributes:
      message: summed over the cohort, the only thing that the server ever sees.
      state: replaces the client's row.
      stats: averaged by the engine with Algorithm.weighting.
      metrics: name -> Mean, summed over the cohort.
    """

    message: PyTree
    state: PyTree = ()
    stats: PyTree = ()
    metrics: dict[str, Mean] = {}


def all_on_the_wire(down, message):
    """The default of Phase.wire: everything that is broadcast and everything that is returned."""
    return down, message


class Phase(NamedTuple):
    """One round trip.

    Attributes:
      broadcast: (params, state) -> down.
      client: (down, Client) -> Update, or None: the server acts alone.
      server: (params, state, total, round) -> (params, state); where client is None,
        (params, state, stats, round) -> (params, state, stats).
      wire: (down, message) -> (down, up), what the protocol really transmits.
    """

    broadcast: Callable
    client: Callable | None
    server: Callable
    wire: Callable = all_on_the_wire


def nothing_resettable(node) -> bool:
    """Returns False: the default of Algorithm.resettable."""
    return False


class Algorithm(NamedTuple):
    """A federated algorithm.

    Attributes:
      init: (params, key) -> server state, without params (as in optax).
      phases: nearly always one; MIME has two.
      client_init: (initial params, id, key) -> row of the client table; () for stateless clients.
      eval_model: (Variables, state) -> Variables that are evaluated, observed and released.
      weighting: 'samples' (p_i = N_i / sum N) or 'uniform' (p_i = 1 / |S|).
      resettable: node of the server state -> whether it holds decaying moments (Adam's), which wrappers may reset.
    """

    init: Callable
    phases: tuple[Phase, ...]
    client_init: Callable
    eval_model: Callable
    weighting: str = "samples"
    resettable: Callable[[Any], bool] = nothing_resettable

    @property
    def fades(self) -> Callable[[Any], bool]:
        """Deprecated name of `resettable`."""
        deprecated("core.Algorithm.fades", "core.Algorithm.resettable")
        return self.resettable


class Observer(NamedTuple):
    """Reads a trajectory and never changes it.

    Attributes:
      init: Variables -> state.
      update: (round, Variables, state) -> state; `round` = completed rounds before the one just done.
      read: (Variables, state) -> dict name -> Variables to evaluate.
    """

    init: Callable
    update: Callable
    read: Callable


class Setting(NamedTuple):
    """What a builder may know about the run.

    Attributes:
      num_clients: K.
      clients_per_round: |S|.
      num_rounds: T.
      init_fn: key -> params, the model's initialiser (FedHBM's random anchors).
      model: models.Model, for what must know the network's parts (FedFA's last layer, BatchNorm's statistics).
    """

    num_clients: int
    clients_per_round: int
    num_rounds: int
    init_fn: Callable | None = None
    model: Any = None

    @property
    def key(self):
        """Raises UserError: what differs by seed is not known to builders."""
        raise UserError(
            "an algorithm, wrapper or observer reads setting.key, but one compiled program serves all seeds: what "
            "differs by seed belongs in its state; take the key as a further argument, init(params, key) or "
            "client_init(params, id, key)."
        )

    @property
    def most_rounds(self) -> int | None:
        """T where no more rounds will ever be run; None where nobody knows (in a FedJAX program)."""
        return self.num_rounds

    @property
    def participation(self) -> float:
        """C = |S| / K, the configured ratio."""
        return self.clients_per_round / self.num_clients


def weight(c: Client, weighting: str) -> jax.Array:
    """Returns the client's aggregation weight before normalisation, 0 for padding.

    Args:
      c: the client.
      weighting: 'samples' (N_i) or 'uniform' (1).
    """
    if weighting == "samples":
        return c.size
    if weighting == "uniform":
        return (c.size > 0).astype(jnp.int32)
    raise ValueError(f"weighting must be 'samples' or 'uniform', not {weighting!r}")


def algorithm(
    client,
    server,
    broadcast=lambda params, state: params,
    init=lambda params: (),
    client_init=lambda params, id: (),
    eval_model=lambda model, state: model,
    weighting="samples",
    wire=all_on_the_wire,
    resettable=nothing_resettable,
    fades=None,
) -> Algorithm:
    """Builds a one-phase algorithm; the defaults are FedAvg's (broadcast params, no state).

    What differs by seed is drawn from the key that `init` and `client_init` may take, never from the setting, because
    all seeds share one compiled program.

    Args:
      client: (down, Client) -> Update.
      server: (params, state, total, round) -> (params, state).
      broadcast: (params, state) -> down.
      init: (params) or (params, key) -> server state.
      client_init: (params, id) or (params, id, key) -> row of the client table.
      eval_model: (Variables, state) -> Variables that are evaluated, observed and released.
      weighting: 'samples' or 'uniform'.
      wire: (down, message) -> (down, up), what the protocol really transmits.
      resettable: node of the server state -> whether it holds decaying moments, which wrappers may reset.
      fades: deprecated name of `resettable`.
    """
    if fades is not None:
        deprecated("core.algorithm(fades=...)", "core.algorithm(resettable=...)")
        resettable = fades
    phase = Phase(broadcast, client, server, wire)
    return Algorithm(taking_key(init, 2), (phase,), taking_key(client_init, 3), eval_model, weighting, resettable)


_RENAMED = {"OfStep": "DerivedFromStep", "nothing_fades": "nothing_resettable"}


def __getattr__(name: str):
    if name in _RENAMED:
        deprecated(f"core.{name}", f"core.{_RENAMED[name]}")
        return globals()[_RENAMED[name]]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
