"""Personal models: rows of clients that keep their own model, as in Ditto and APFL."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, tree
from fedwin.tree import PyTree

# The personal model before a client's first participation: x^0, or the server model that it receives there.
First = Literal["initial", "received"]


class PersonalModel(NamedTuple):
    """A model that stays with its client.

    Attributes:
      params: v_i, like the server model's.
      stats: its statistics, () for a model without any.
      seen: whether the client has taken part, bool [].
    """

    params: PyTree
    stats: PyTree
    seen: jax.Array


def initial(setting: core.Setting, params) -> PersonalModel:
    """Returns a client's personal model before its first participation; `params` are x^0."""
    # Statistics are read once the client has taken part: only their shapes matter here.
    return PersonalModel(params, tree.zeros_like(core.stats_shapes(setting)), jnp.zeros((), bool))


def start(own: PersonalModel, params, c: core.Client, first: str) -> core.Variables:
    """Returns the model that personal training continues from; it starts at the 'initial' or the 'received' model."""
    v = own.params if first == "initial" else tree.where(own.seen, own.params, params)
    return core.Variables(v, tree.where(own.seen, own.stats, c.stats))


def trained(params, stats, before: PersonalModel) -> PersonalModel:
    """Returns the personal model after training; statistics () keep those from before, for losses that return none."""
    return PersonalModel(params, before.stats if tree.is_empty(stats) else stats, jnp.ones((), bool))


def read(model: core.Variables, own: PersonalModel) -> core.Variables:
    """Returns the personal model, or the server's for a client that has not taken part."""
    return core.Variables(tree.where(own.seen, own.params, model.params), tree.where(own.seen, own.stats, model.stats))
