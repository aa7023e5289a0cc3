"""The vocabulary: what one client sees, what it returns, and what an algorithm is.

One round of every algorithm reads

    down = broadcast(params, state)                what a client may see, and nothing else
    u_i  = client(down, client_i)  for i in cohort
    params, state = server(params, state, sum_i u_i.message, round)

Everything is a pure function of pytrees; the engine decides how the cohort is mapped.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedwin.errors import UserError
from fedwin.keys import taking_key
from fedwin.means import Mean, MeanStep, OfStep, mean, mean_step, mean_step_of, with_mean_step

__all__ = [
    "Algorithm",
    "Client",
    "Mean",
    "MeanStep",
    "Observer",
    "OfStep",
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
    "nothing_fades",
    "weight",
    "with_mean_step",
]

PyTree = Any


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


def nothing_fades(node) -> bool:
    """The default of Algorithm.fades."""
    return False


class Algorithm(NamedTuple):
    """A federated algorithm.

    Attributes:
      init: (params, key) -> server state, without params (as in optax).
      phases: nearly always one; MIME has two.
      client_init: (initial params, id, key) -> row of the client table; () for stateless clients.
      eval_model: (Variables, state) -> Variables that are evaluated, observed and released.
      weighting: 'samples' (p_i = N_i / sum N) or 'uniform' (p_i = 1 / |S|).
      fades: node of the server state -> whether it is made of moments that forget (Adam's), which may be reset.
    """

    init: Callable
    phases: tuple[Phase, ...]
    client_init: Callable
    eval_model: Callable
    weighting: str = "samples"
    fades: Callable[[Any], bool] = nothing_fades


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
    fades=nothing_fades,
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
      fades: node of the server state -> whether it is made of moments that forget.
    """
    phase = Phase(broadcast, client, server, wire)
    return Algorithm(taking_key(init, 2), (phase,), taking_key(client_init, 3), eval_model, weighting, fades)
