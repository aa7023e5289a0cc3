"""Compression of what clients send: stochastic quantization, and sparsification with error feedback."""

import itertools
import math
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fedwin import core, tree
from fedwin.errors import UserError
from fedwin.registry.ranges import PositiveShare, Range, Share
from fedwin.tree import PyTree
from fedwin.wrappers.base import WRAPPERS, Wrapper, single_round_trip, with_own_rows
from fedwin.wrappers.messages import check_nothing_derived, map_values, step_of

# Separates these draws from the others that use a client's key.
TAG = 0x51534744
# A float32 has 24 significant bits: more levels than 2^15 would not be spaced evenly after the draw is added.
MOST_BITS = 16


def stochastic(x, key, bits: int):
    """Rounds every entry to one of the two nearest levels, at random, so that the expectation is the entry: Q(x).

    Example:
      >>> stochastic(jnp.array([0.0, 1.0, -0.5]), jax.random.key(0), bits=2).tolist()
      [0.0, 1.0, -1.0]
    """
    levels, dtype, x = 2 ** (bits - 1) - 1, x.dtype, tree.at_least_float32(x)
    scale = jnp.max(jnp.abs(x))
    unit = x / jnp.where(scale > 0, scale, 1) * levels
    # The sum may round up to the next integer beyond the last level.
    drawn = jnp.clip(jnp.floor(unit + jax.random.uniform(key, x.shape, x.dtype)), -levels, levels)
    return (drawn * (scale / levels)).astype(dtype)


def sent_bytes(leaf, bits: int) -> int:
    """Returns the number of bytes that an array is sent in: `bits` per entry and the scale, or uncompressed if smaller.

        min(ceil(n bits / 8) + b, n b),   n entries of b bytes

    Example:
      >>> sent_bytes(jnp.zeros(100), bits=8), sent_bytes(jnp.zeros(100), bits=3), sent_bytes(jnp.zeros(1), bits=8)
      (104, 42, 4)
    """
    dense = leaf.size * leaf.dtype.itemsize
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return dense
    return min(math.ceil(leaf.size * bits / 8) + leaf.dtype.itemsize, dense)


def _check_bits(wrapper: str, bits: int) -> None:
    if bits > MOST_BITS and bits != 32:
        raise UserError(f"{wrapper}: bits={bits} must be an integer in 2..{MOST_BITS}, or 32 to quantize nothing.")


@WRAPPERS.register("quantize", paper="alistarh2017qsgd")
def quantize(setting: core.Setting, *, bits: Annotated[int, Range(2)] = 8) -> Wrapper:
    """Rounds what clients send to 2^bits - 1 levels per array, at random and without bias.

        Q(x) = (s / L) floor(L x / s + u),   s = max |x|,   L = 2^(bits - 1) - 1,   u uniform in [0, 1)

    Every array of a message (a layer's kernel, its bias, also SCAFFOLD's second sum) is quantized separately and sent
    as one scale s and `bits` bits per entry, rounded up to bytes; arrays that would be no smaller are sent unchanged.
    This is QSGD with the largest entry in place of the norm. What the server sends and statistics (BatchNorm's) are not
    quantized. Algorithms whose servers compute further sums from exact steps are rejected (FedDyn, FedExP, FedGloSS,
    FedGMA, FedSMOO, FedStale, FedVARP).

    Args:
      bits: bits per entry, from 2 to 16; 32 quantizes nothing.

    Raises:
      UserError: when the server needs exact steps.

    Source: Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, 2017,
    https://arxiv.org/abs/1610.02132.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", wrappers=["quantize:bits=2"])  # steps of one entry are sent unchanged
      {'model': [3.916, 3.315, 3.169]}
    """
    _check_bits("quantize", bits)

    def quantized_phase(phase: core.Phase) -> core.Phase:
        def client(down, c):
            update = phase.client(down, c)
            check_nothing_derived("quantize", update.message)
            key, number = jax.random.fold_in(c.key, TAG), itertools.count()

            def one(x):
                own = jax.random.fold_in(key, next(number))
                return stochastic(x, own, bits) if sent_bytes(x, bits) < x.size * x.dtype.itemsize else x

            return update._replace(message=map_values(one, update.message))

        def wire(down, message):
            down, up = phase.wire(down, message)
            return down, map_values(lambda x: jax.ShapeDtypeStruct((sent_bytes(x, bits),), jnp.uint8), up)

        return phase._replace(client=client, wire=wire)

    wrap = lambda algorithm: core.with_client_phases(quantized_phase, algorithm)
    return Wrapper("quantize") if bits == 32 else Wrapper("quantize", wrap)


class Feedback(NamedTuple):
    """State of a client.

    Attributes:
      inner: the wrapped algorithm's client state.
      residual: e_i, what the client has not sent yet, like the parameters.
    """

    inner: PyTree
    residual: PyTree


def kept_entries(size: int, share: float) -> int:
    """Returns the number of entries that are sent: ceil(share size), at least one.

    Example:
      >>> kept_entries(1000, 0.01), kept_entries(5, 0.01)
      (10, 1)
    """
    # The product may exceed an integer by a rounding error.
    return max(1, math.ceil(size * share - 1e-9 * size))


def largest(values, count: int):
    """Returns a tree with its `count` entries of largest magnitude (of equal ones the first), and 0 elsewhere.

    Example:
      >>> largest({"a": jnp.array([1.0, -3.0]), "b": jnp.array([2.0])}, 2)["a"].tolist()
      [0.0, -3.0]
    """
    vector, unravel = ravel_pytree(values)
    _, places = jax.lax.top_k(jnp.abs(vector), count)
    return unravel(jnp.zeros_like(vector).at[places].set(vector[places]))


def _count(step: core.Mean, share: float) -> int:
    return kept_entries(sum(leaf.size for leaf in jax.tree.leaves(step.total)), share)


def _sparse(step: core.Mean, share: float, bits: int):
    """Returns the shapes in which a step is sent: values and positions of the kept entries, if they are smaller."""
    leaves, count = jax.tree.leaves(step.total), _count(step, share)
    dtype, arrays = jnp.result_type(*(leaf.dtype for leaf in leaves)), len(leaves) if bits == 32 else 1
    # An outer `quantize` has a scale for each array. The data decide how the entries fall; equal parts are assumed.
    values = [jax.ShapeDtypeStruct(((count + place) // arrays,), dtype) for place in range(arrays)]
    if bits < 32:
        entries = jax.ShapeDtypeStruct((sum(leaf.size for leaf in leaves),), dtype)
        values, total = ([jax.ShapeDtypeStruct((sent_bytes(x, bits),), jnp.uint8)] for x in (values[0], entries))
        step = step._replace(total=total)
    sparse = {"values": values, "positions": jax.ShapeDtypeStruct((count,), jnp.int32)}
    return sparse if tree.nbytes(sparse) < tree.nbytes(step.total) else step


@WRAPPERS.register("topk", paper=("stich2018sparsified", "seide2014bit", "sarfi2025sparseloco"))
def topk(
    setting: core.Setting, *, share: PositiveShare = 0.01, decay: Share = 1.0, bits: Annotated[int, Range(2)] = 32
) -> Wrapper:
    """Sends the largest entries of every client's step; the others stay in the client's state (error feedback).

        p_i = decay e_i + y_i - x,   sent_i = Q(the k entries of p_i of largest magnitude),   e_i <- p_i - sent_i

    Q rounds the k entries together, as `quantize` does, so its errors also stay in e_i. SparseLoCo is share=0.03,
    decay=0.95, bits=2 around diloco:optimizer=sgd,server_lr=1. SparseLoCo's paper counts k in chunks of 4096 and has
    another Q, and the released code divides an entry by the number of workers that sent it, not by that of all workers.

    k = ceil(share d) of the d parameters, over all layers together. Each entry is sent as its value and a position of
    four bytes, or the whole step is sent if it is no larger. A client's e_i does not change while the client does not
    take part. Other parts of a message (SCAFFOLD's second sum), statistics and what the server sends are not
    sparsified. Algorithms without a mean step, with two round trips (MIME), and those whose servers compute further
    sums from exact steps (as for `quantize`) are rejected.

    Args:
      share: share of the entries that are sent; 1 with 32 bits sends everything and keeps no state.
      decay: share of the residual that the next round adds.
      bits: bits per entry, from 2 to 16; 32 quantizes nothing.

    Raises:
      UserError: when clients send no mean step, or the server needs exact steps.

    Source: Stich et al., Sparsified SGD with Memory, 2018, https://arxiv.org/abs/1809.07599. Seide et al., 1-Bit
    Stochastic Gradient Descent, 2014, https://www.isca-archive.org/interspeech_2014/seide14_interspeech.html. Sarfi et
    al., Communication Efficient LLM Pre-training with SparseLoCo, 2025, https://arxiv.org/abs/2508.15706.

    Example:
      >>> from fedwin import testing
      >>> p = testing.quadratic([1, 3], [[0, 1], [4, 2]], [1.0, 0.0], steps=5, lr=0.1, schedule=((0, 1),))
      >>> testing.run_rounds("fedavg", wrappers=["topk:share=0.5"], problem=p)
      {'model': [7.166, 5.086, 3.204]}
    """

    _check_bits("topk", bits)

    def sparse_phase(phase: core.Phase) -> core.Phase:
        def client(down, c):
            update, inner = core.on_inner_row(phase.client, down, c)
            check_nothing_derived("topk", update.message)
            mean = step_of("topk", update.message, whole=True)
            residual = c.state.residual if decay == 1 else tree.scale(decay, c.state.residual)
            # For a client of weight 0, 0 / 0 would be NaN.
            pending = tree.where(mean.weight > 0, tree.add(residual, mean.value), residual)
            shapes = jax.eval_shape(lambda *sent: sent, down, update.message)
            # Leaves out a part of the model that stays local.
            count = _count(core.mean_step_of(phase.wire(*shapes)[1]), share)
            sent = largest(pending, count)
            if bits < 32:
                vector, unravel = ravel_pytree(sent)
                sent = unravel(stochastic(vector, jax.random.fold_in(c.key, TAG), bits))
            return update._replace(
                message=core.with_mean_step(update.message, core.mean(sent, mean.weight)),
                state=Feedback(inner, tree.sub(pending, sent)),
            )

        def wire(down, message):
            down, up = phase.wire(down, message)
            return down, core.map_mean_steps(lambda step: _sparse(step, share, bits), up)

        return phase._replace(client=client, wire=wire)

    def wrap(algorithm):
        single_round_trip(algorithm, "topk")
        init = lambda inner, params, key: Feedback(inner, tree.zeros_like(params))
        return with_own_rows(algorithm, init, sparse_phase)

    return Wrapper("topk") if share == 1 and bits == 32 else Wrapper("topk", wrap)
