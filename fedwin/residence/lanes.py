"""States of several seeds in one: a leading axis of lanes; and the examples that they share."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fedwin.data.store import Store
from fedwin.residence.examples import Resident


@functools.partial(jax.jit, static_argnums=1)
def filled(run, lanes: int):
    """Returns a state of so many lanes, `run` in each of them."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)), run)


@functools.partial(jax.jit, donate_argnums=0)
def put(several, run, lane):
    """Returns a state of several lanes (donated), with `run` in one of them."""
    return jax.tree.map(lambda leaf, own: leaf.at[lane].set(own), several, run)


@jax.jit
def taken(several, lane):
    """Returns a copy of what one lane holds."""
    return jax.tree.map(lambda leaf: leaf[lane], several)


class ResidentLanes(Resident):
    """The examples of several seeds, which stay on the device: there once, with an index for every lane.

    Args:
      members: the examples of each lane's seed.
      apart: whether the lanes' clients hold different ones; if not, one index serves all.
      room: entries of an index.
    """

    def __init__(self, members: Sequence[Resident], apart: bool, room: int):
        stores = [member.store for member in members]
        self.store = stores[0]
        if apart:
            padded = [store._replace(examples=(), order=_padded(store.order, room)) for store in stores]
            together: Store = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
            self.store = together._replace(examples=stores[0].examples)


def _padded(order, room: int):
    return jnp.pad(order, (0, room - order.shape[0]))
