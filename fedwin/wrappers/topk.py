"""Sparsification: clients send the largest entries of their steps and keep the rest for later (error feedback)."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fedwin import core, tree
from fedwin.registry.ranges import PositiveShare
from fedwin.tree import PyTree
from fedwin.wrappers.base import WRAPPERS, Wrapper, personal_model, single_round_trip
from fedwin.wrappers.messages import check_nothing_derived, step_of


class Feedback(NamedTuple):
    """State of a client.

    Attributes:
      inner: the wrapped algorithm's client state.
      residual: what the client has not sent yet, like the parameters.
    """

    inner: PyTree
    residual: PyTree


def kept_entries(size: int, share: float) -> int:
    """Returns the number of entries that are sent: ceil(share size), at least one.

    Args:
      size: entries of the model.
      share: of them that are sent, in (0, 1].

    Example:
      >>> kept_entries(1000, 0.01), kept_entries(5, 0.01)
      (10, 1)
    """
    # The product may exceed an integer by a rounding error.
    return max(1, math.ceil(size * share - 1e-9 * size))


def largest(values, count: int):
    """Returns a tree with its `count` entries of the largest magnitude, and 0 elsewhere.

    Args:
      values: tree of arrays.
      count: entries to keep, over all leaves.

    Returns:
      A tree like `values`; of equal magnitudes, the first ones are kept.

    Example:
      >>> largest({"a": jnp.array([1.0, -3.0]), "b": jnp.array([2.0])}, 2)["a"].tolist()
      [0.0, -3.0]
    """
    vector, unravel = ravel_pytree(values)
    _, places = jax.lax.top_k(jnp.abs(vector), count)
    return unravel(jnp.zeros_like(vector).at[places].set(vector[places]))


def _sparse(step: core.Mean, share: float):
    """Returns the shapes in which a step is sent: values and positions of the kept entries, if they are smaller."""
    leaves = jax.tree.leaves(step.total)
    count = kept_entries(sum(leaf.size for leaf in leaves), share)
    values = jax.ShapeDtypeStruct((count,), jnp.result_type(*(leaf.dtype for leaf in leaves)))
    sparse = {"values": values, "positions": jax.ShapeDtypeStruct((count,), jnp.int32)}
    return sparse if tree.nbytes(sparse) < tree.nbytes(step.total) else step


@WRAPPERS.register("topk", paper=("stich2018sparsified", "seide2014bit"))
def topk(setting: core.Setting, *, share: PositiveShare = 0.01) -> Wrapper:
    """Sends the largest entries of every client's step; the others wait in the client's state (error feedback).

        p_i = e_i + y_i - x,   sent_i = the k entries of p_i of largest magnitude,   e_i <- p_i - sent_i

    k = ceil(share d) of the d parameters, over all layers together. Per entry, its value and a position of four bytes
    are sent, or the whole step where that is no more. A client's e_i stays as it is while the client does not take
    part. Other parts of a message (SCAFFOLD's second sum) and statistics are sent as they are; nothing is sparsified
    on the way to the clients. Algorithms without a mean step, with two round trips (MIME), and those whose servers
    compute further sums from exact steps (FedDyn, FedGMA) are refused.

    Args:
      share: of the parameters; 1 sends everything and keeps no state.

    Raises:
      UserError: when clients send no mean step, or the server needs exact steps.

    Source: Stich et al., Sparsified SGD with Memory, 2018, https://arxiv.org/abs/1809.07599. Seide et al., 1-Bit
    Stochastic Gradient Descent, 2014, https://www.isca-archive.org/interspeech_2014/seide14_interspeech.html.

    Example:
      >>> from fedwin import testing
      >>> p = testing.quadratic([1, 3], [[0, 1], [4, 2]], [1.0, 0.0], steps=5, lr=0.1, schedule=((0, 1),))
      >>> testing.run_rounds("fedavg", wrappers=["topk:share=0.5"], problem=p)
      {'model': [7.166, 5.086, 3.204]}
    """

    def sparse_phase(phase: core.Phase) -> core.Phase:
        def client(down, c):
            update, inner = core.on_inner_row(phase.client, down, c)
            check_nothing_derived("topk", update.message)
            mean = step_of("topk", update.message, whole=True)
            pending = tree.add(c.state.residual, mean.value)
            sent = largest(pending, kept_entries(sum(x.size for x in jax.tree.leaves(pending)), share))
            return update._replace(
                message=core.with_mean_step(update.message, core.mean(sent, mean.weight)),
                state=Feedback(inner, tree.sub(pending, sent)),
            )

        def wire(down, message):
            down, up = phase.wire(down, message)
            return down, core.map_mean_steps(lambda step: _sparse(step, share), up)

        return phase._replace(client=client, wire=wire)

    def wrap(algorithm):
        single_round_trip(algorithm, "topk")
        phases = (sparse_phase(phase) if phase.client else phase for phase in algorithm.phases)
        return algorithm._replace(
            phases=tuple(phases),
            client_init=lambda params, id, key: Feedback(
                algorithm.client_init(params, id, key), tree.zeros_like(params)
            ),
            client_model=personal_model(algorithm),
        )

    return Wrapper("topk") if share == 1 else Wrapper("topk", wrap)
