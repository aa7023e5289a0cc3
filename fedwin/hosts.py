"""Several processes, on one host or many, that compute one run together; with one process all of this does nothing.

Every process runs the same program on the same flags. The cohort is spread over the devices of all of them; what only
one process can have (a run's directory, rows of clients in main memory or in a file) is the first one's.
"""

import json
import pickle
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedwin import tree
from fedwin.errors import UserError


def count() -> int:
    """Returns how many processes there are."""
    return jax.process_count()


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return jax.process_index() == 0


def check_devices() -> None:
    """Raises UserError unless every process has the same number of devices."""
    if count() == 1:
        return
    numbers = [sum(device.process_index == process for device in jax.devices()) for process in range(count())]
    if len(set(numbers)) > 1:
        raise UserError(
            f"the processes have {', '.join(map(str, numbers))} devices; give each the same number, on a CPU with the "
            f"environment variable JAX_NUM_CPU_DEVICES."
        )


def _placed(leaf, sharding):
    if tree.is_key(leaf):
        return jax.random.wrap_key_data(_placed(jax.random.key_data(leaf), sharding))
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def place(values, shardings):
    """Puts values that every process has on the devices of all of them; nothing is sent.

    Args:
      values: tree of arrays.
      shardings: a tree like it, or one sharding for all leaves.
    """
    if count() == 1:
        return jax.device_put(values, shardings)
    if isinstance(shardings, jax.sharding.Sharding):
        return jax.tree.map(lambda leaf: _placed(leaf, shardings), values)
    return jax.tree.map(_placed, values, shardings)


def whole(values):
    """Returns values with every leaf that is split over processes whole on each; a collective where there is one."""
    if count() == 1:
        return values

    def gathered(leaf):
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
            return leaf
        return multihost_utils.process_allgather(leaf, tiled=True)

    return jax.tree.map(gathered, values)


def from_first(values):
    """Returns the first process's values on all, bit for bit, as host arrays (keys as keys); a collective.

    Args:
      values: tree of arrays, of the same shapes everywhere.
    """
    if count() == 1:
        return values

    def bits(leaf):
        # Sums of integers carry every bit: -0.0 + 0.0 would lose a sign, and halves of float64 are not rounded.
        found = np.ascontiguousarray(jax.random.key_data(leaf) if tree.is_key(leaf) else leaf).reshape(-1)
        return found.view(np.uint32 if found.dtype.itemsize % 4 == 0 else np.uint8)

    def like(found, leaf):
        if tree.is_key(leaf):
            return jax.random.wrap_key_data(found.reshape(jax.random.key_data(leaf).shape))
        return found.view(leaf.dtype).reshape(leaf.shape)

    leaves, treedef = jax.tree.flatten(values)
    sent = multihost_utils.broadcast_one_to_all([bits(leaf) for leaf in leaves])
    return jax.tree.unflatten(
        treedef, [like(np.asarray(found), leaf) for found, leaf in zip(sent, leaves, strict=True)]
    )


def numbers(*mine: int) -> np.ndarray:
    """Returns every process's numbers, int64 [processes, n]; a collective."""
    if count() == 1:
        return np.array([mine], np.int64)
    pieces = np.array(mine, np.int64).view(np.uint32)
    return np.asarray(multihost_utils.process_allgather(pieces)).reshape(count(), -1).view(np.int64)


def texts(mine: str) -> list[str]:
    """Returns every process's text; a collective."""
    if count() == 1:
        return [mine]
    data = np.frombuffer(mine.encode(), np.uint8)
    lengths = numbers(len(data))[:, 0]
    padded = np.zeros(max(int(lengths.max()), 1), np.uint8)
    padded[: len(data)] = data
    everyone = np.asarray(multihost_utils.process_allgather(padded)).reshape(count(), -1)
    return [bytes(row[:length]).decode() for row, length in zip(everyone, lengths, strict=True)]


def said_by_first(mine: Any) -> Any:
    """Returns the first process's JSON data on all; a collective."""
    return mine if count() == 1 else json.loads(texts(json.dumps(mine if is_first() else None))[0])


def agreed(action: Callable[[], Any]) -> Any:
    """Returns what an action does, if it succeeds in all processes; a collective.

    Raises:
      UserError: it raised one in this process, or in another, whose number and message are told.
    """
    if count() == 1:
        return action()
    try:
        found, mine = action(), None
    except UserError as error:
        found, mine = None, error
    told = texts("" if mine is None else pickle.dumps((type(mine), str(mine))).hex())
    if mine is not None:
        raise mine
    for process, text in enumerate(told):
        if text:
            kind, said = pickle.loads(bytes.fromhex(text))
            raise kind(f"process {process}: {said}")
    return found
