"""Asynchronous servers: a ring of the last broadcasts, from which every client takes the one it started from.

    d_i = w(s_i) (y_i - x^{t - s_i}),   x^{t+1} = server(x^t, mean of d_i over the buffer)

Client i arrives in server step t with staleness s_i, the number of steps since it started from x^{t - s_i}. It trains
inside the compiled round of its arrival, at the learning rate of its start. The mean divides by the clients' weights
without w, so that stale steps are shorter. Other parts of a message, sums such as SCAFFOLD's and FedDyn's, are not
weighted, so they still add up to the mean of all clients' rows. A row cannot change while its client trains.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedwin import core, tree
from fedwin.errors import UserError
from fedwin.registry import Registry
from fedwin.registry.ranges import NonNegative, NonNegativeInt, Positive, PositiveInt, PositiveShare
from fedwin.tree import PyTree
from fedwin.wrappers.base import after, single_round_trip

# Names of the leaves of the ring in a run's state begin with this.
OLD_MODELS = "state.own."
# Builders have the signature builder(*, option=...) -> (staleness int32 [] -> weight float []).
STALENESS = Registry("staleness", rule="weight of an update", builds=Callable)


@STALENESS.register("constant")
def constant() -> Callable:
    """Constant: w(s) = 1."""
    return lambda s: jnp.ones((), float)


@STALENESS.register("polynomial", paper="xie2019asynchronous")
def polynomial(*, a: NonNegative = 0.5) -> Callable:
    """Polynomial: w(s) = (1 + s)^-a.

    Args:
      a: exponent.
    """
    return lambda s: jnp.power(1 + jnp.asarray(s, float), -a)


@STALENESS.register("hinge", paper="xie2019asynchronous")
def hinge(*, a: Positive = 10.0, b: NonNegativeInt = 4) -> Callable:
    """Hinge: w(s) = 1 if s <= b, else 1 / (1 + a (s - b)).

    Args:
      a: slope of the denominator.
      b: greatest staleness with full weight.
    """
    return lambda s: 1 / (1 + a * jnp.asarray(jnp.maximum(s - b, 0), float))


class Buffer(NamedTuple):
    """An asynchronous server.

    Attributes:
      size: updates per server step.
      concurrency: clients in training.
      weight: staleness, int32 [] -> weight, float [].
      max_staleness: greatest staleness of an update that is used.
      mixing: alpha, or None for steps from the model that the client received.
      shrinks: whether steps may be weighted.
    """

    size: int
    concurrency: int
    weight: Callable
    max_staleness: int
    mixing: float | None
    shrinks: bool


# Builders have the signature builder(clients_per_round, *, option=...) -> Buffer.
ASYNCHRONOUS = Registry("asynchronous server", rule="rule", builds=Buffer)


@ASYNCHRONOUS.register(
    "buffer", paper=("nguyen2022federated", "xie2019asynchronous"), instances=("buffer:concurrency=20",)
)
def buffer(
    clients_per_round: int,
    *,
    concurrency: PositiveInt,
    size: PositiveInt | None = None,
    staleness: str = "polynomial:a=0.5",
    max_staleness: NonNegativeInt = 100,
    mixing: PositiveShare | None = None,
) -> Buffer:
    """Buffer: `concurrency` clients train at any time, and the server steps whenever `size` updates have arrived.

        d_i = w(s_i) (y_i - x^{t - s_i}),   or with mixing   d_i = mixing w(s_i) (y_i - x^t)

    With size=1 and mixing this is FedAsync, x <- (1 - a_t) x + a_t y_i with a_t = mixing w(s_i), and s_i = 0 if no step
    came in between.

    Args:
      concurrency: number of clients in training.
      size: updates per server step; none = --clients_per_round.
      staleness: weight w of an update, such as constant, polynomial:a=0.5, "hinge:a=10,b=4".
      max_staleness: older updates are dropped.
      mixing: FedAsync's mixing rate; none = FedBuff.

    Source: Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, 2022,
    https://arxiv.org/abs/2106.06639. Xie et al., Asynchronous Federated Optimization, 2019,
    https://arxiv.org/abs/1903.03934.
    """
    weight = STALENESS.build(staleness)
    shrinks = mixing is not None or STALENESS.check(staleness).name != "constant"
    return Buffer(size or clients_per_round, concurrency, weight, max_staleness, mixing, shrinks)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["models", "place"], meta_fields=["size"])
@dataclasses.dataclass(frozen=True)
class OldModels:
    """Those of the last L broadcasts that a dispatch of R rounds needs, if the whole ring is not on the device.

    Attributes:
      models: tree of [H, ...].
      place: where broadcast number n is in `models`, at n mod L, int32 [L].
      size: updates per server step.
    """

    models: PyTree
    place: jax.Array | np.ndarray
    size: int

    def room(self, rounds: int) -> int:
        """Returns H: room for the models that clients start from, the current one, and one of every server step."""
        return min(rounds * (self.size + 1) + 1, len(self.place))

    def allocated(self, rounds: int | None) -> PyTree:
        """Returns the ring with room for a dispatch of at most R rounds; None: with room for all, tree of [L, ...].

        Its only model is that of round 0.
        """
        held = len(self.place) if rounds is None else self.room(rounds)
        first = lambda x: jnp.zeros((held, *x.shape[1:]), x.dtype).at[0].set(x[0])
        models = tree.map(first, self.models)
        return models if rounds is None else dataclasses.replace(self, models=models)


def asynchronous(algorithm: core.Algorithm, server: Buffer, longest: Callable[[], int]) -> core.Algorithm:
    """Returns an algorithm whose clients train from earlier broadcasts: that of `Client.staleness` rounds ago.

    Args:
      algorithm: the algorithm, with all its wrappers.
      server: the asynchronous server.
      longest: returns the greatest staleness of the run, when a round is traced.

    Raises:
      UserError: the algorithm has several round trips per round, or, when a round is traced, sends no step to mix.
    """
    phase = single_round_trip(algorithm, "asynchronous")

    # The ring has what the server sent, [L, ...], and with mixing its models.
    def sent(params, inner):
        return phase.broadcast(params, inner), None if server.mixing is None else params

    def init(params, inner, key):
        first = tree.map(lambda x: jnp.asarray(x)[None], sent(params, inner))
        return OldModels(first, jnp.zeros(longest() + 1, jnp.int32), server.size)

    held = lambda ring: ring.models if isinstance(ring, OldModels) else ring

    def place(ring, round):
        at = round % (longest() + 1)
        return ring.place[at] if isinstance(ring, OldModels) else at

    def push(ring, model, inner, round):
        replaced = lambda old, new: lax.dynamic_update_index_in_dim(old, new, place(ring, round + 1), 0)
        models = tree.map(replaced, held(ring), sent(model.params, inner))
        return dataclasses.replace(ring, models=models) if isinstance(ring, OldModels) else models, model

    def client(ring, c):
        staleness = jnp.zeros((), jnp.int32) if c.staleness is None else c.staleness
        at = lambda round: tree.map(lambda x: lax.dynamic_index_in_dim(x, place(ring, round), 0, False), held(ring))
        down, start = at(c.round - staleness)
        update = phase.client(down, c._replace(round=c.round - staleness, staleness=None))
        # A factor of 1 would change bits: XLA rounds a product that is added up only once.
        is_plain = server.mixing is None and (longest() == 0 or not server.shrinks)

        def weighted(part):
            if is_plain or not isinstance(part, core.Mean):
                return part
            total = part.total
            if server.mixing is not None:
                if not isinstance(part, core.MeanStep):
                    raise UserError("asynchronous: mixing needs clients that send a step y_i - x; omit mixing.")
                total = tree.axpy(part.weight, tree.sub(start, at(c.round)[1]), total)
            return part._replace(total=tree.scale(server.weight(staleness) * (server.mixing or 1.0), total))

        return update._replace(message=tree.map_nodes(weighted, update.message, core.Mean, core.DerivedFromStep))

    def wire(ring, message):
        one = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
        return phase.wire(tree.map(one, held(ring)[0]), message)

    changed = lambda p: p._replace(broadcast=lambda params, state: state.own, client=client, wire=wire)
    return core.with_client_phases(changed, after(algorithm, init, push))


def resized_ring(ring: np.ndarray, length: int, round: int) -> np.ndarray:
    """Returns the ring of a run that forks another one at a round, from a leaf of the other's ring, [L, ...].

    Args:
      length: length of the ring, [length, ...].
    """
    if len(ring) == length:
        return ring
    # The broadcast of round n has place n mod L.
    numbers = np.arange(max(round + 1 - min(len(ring), length), 0), round + 1)
    changed = np.zeros((length, *ring.shape[1:]), ring.dtype)
    changed[numbers % length] = ring[numbers % len(ring)]
    return changed
