"""Runs of several processes, on one host or many: joining, broadcast, gather, and the loss of a process.

Every process runs the same program with the same flags. The cohort is spread over the devices of all processes. What
only one process can own (a run's directory, offloaded client tables) belongs to process 0. Functions marked as
collectives must be called by all processes; in a single process they return their argument.
"""

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedwin import jax_config, tree
from fedwin.errors import UserError

T = TypeVar("T")

# Seconds that a process waits for the others to start, and after which a silent process counts as lost.
JOIN_TIMEOUT = 300
HEARTBEAT_TIMEOUT = 30
# Messages of the backends when another process ends during a collective.
_LOST_PATTERN = re.compile(
    r"gloo|nccl|rccl|coordination service|connection (closed|reset)|deadline_exceeded|unavailable", re.I
)


def join(address: str | None = None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Joins the other processes of a run; must be called before the first computation.

    Without arguments the cluster environment (SLURM, Open MPI, Cloud TPU) provides them.

    Args:
      address: host:port of process 0.
      process_id: number of this process, from 0.

    Raises:
      UserError: only some arguments are given, one is invalid, or the other processes cannot be reached.
    """
    if jax.distributed.is_initialized():
        return
    given = (address is not None, num_processes is not None, process_id is not None)
    if any(given) and not all(given):
        raise UserError(
            "coordinator_address, num_processes and process_id go together; give all three, or --distributed alone "
            "where the cluster knows them."
        )
    if address is not None and num_processes is not None and process_id is not None:
        _check_arguments(address, num_processes, process_id)
    jax_config.set_up_processes()
    try:
        jax.distributed.initialize(
            address,
            num_processes,
            process_id,
            initialization_timeout=JOIN_TIMEOUT,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
        )
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        remedy = "check --coordinator_address, --num_processes and --process_id, and that all processes are started"
        raise UserError(f"the processes could not be joined ({reason}); {remedy}.") from error


def _check_arguments(address: str, num_processes: int, process_id: int) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(f"coordinator_address={address} is not HOST:PORT, e.g. node0:12345.")
    if num_processes < 1:
        raise UserError(f"num_processes={num_processes} must be at least 1.")
    if not 0 <= process_id < num_processes:
        raise UserError(f"process_id={process_id} must be from 0 to {num_processes - 1} (--num_processes minus 1).")


def count() -> int:
    """Returns the number of processes."""
    return jax.process_count()


def is_first() -> bool:
    """Whether this is process 0, which writes all files."""
    return jax.process_index() == 0


def is_joined() -> bool:
    """Whether this process is one of several."""
    return jax.distributed.is_initialized() and count() > 1


def check_devices() -> None:
    """Raises UserError unless all processes have the same number of devices."""
    if count() == 1:
        return
    devices = [sum(device.process_index == process for device in jax.devices()) for process in range(count())]
    if len(set(devices)) > 1:
        raise UserError(
            f"the processes have {', '.join(map(str, devices))} devices; give each the same number, on a CPU with the "
            f"environment variable JAX_NUM_CPU_DEVICES."
        )


def put_global(values, shardings):
    """Puts a tree of arrays, equal in all processes, on the devices of all, without communication.

    `shardings` are a tree like `values`, or one for all leaves.
    """
    if count() == 1:
        return jax.device_put(values, shardings)
    if isinstance(shardings, jax.sharding.Sharding):
        return jax.tree.map(lambda leaf: _put_leaf(leaf, shardings), values)
    return jax.tree.map(_put_leaf, values, shardings)


def _put_leaf(leaf, sharding):
    if tree.is_key(leaf):
        return jax.random.wrap_key_data(_put_leaf(jax.random.key_data(leaf), sharding))
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def all_gather(values):
    """Returns a tree with every leaf that is sharded over processes gathered on each of them; a collective."""
    if count() == 1:
        return values

    def gather(leaf):
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
            return leaf
        return multihost_utils.process_allgather(leaf, tiled=True)

    return jax.tree.map(gather, values)


def broadcast_arrays(values):
    """Returns process 0's tree of arrays in all processes, bit for bit, as host arrays (keys as keys); a collective.

    The trees of all processes have the same shapes and dtypes.
    """
    if count() == 1:
        return values

    def to_bits(leaf):
        # The broadcast sums over processes. Sums of integers are exact; those of floats lose the sign of -0.0.
        data = np.ascontiguousarray(jax.random.key_data(leaf) if tree.is_key(leaf) else leaf).reshape(-1)
        return data.view(np.uint32 if data.dtype.itemsize % 4 == 0 else np.uint8)

    def from_bits(bits, leaf):
        if tree.is_key(leaf):
            return jax.random.wrap_key_data(bits.reshape(jax.random.key_data(leaf).shape))
        return bits.view(leaf.dtype).reshape(leaf.shape)

    leaves, treedef = jax.tree.flatten(values)
    received = multihost_utils.broadcast_one_to_all([to_bits(leaf) for leaf in leaves])
    return jax.tree.unflatten(
        treedef, [from_bits(np.asarray(bits), leaf) for bits, leaf in zip(received, leaves, strict=True)]
    )


def all_gather_integers(*values: int) -> np.ndarray:
    """Returns the n integers of each process, int64 [processes, n]; a collective."""
    if count() == 1:
        return np.array([values], np.int64)
    halves = np.array(values, np.int64).view(np.uint32)
    return np.asarray(multihost_utils.process_allgather(halves)).reshape(count(), -1).view(np.int64)


def all_gather_text(text: str) -> list[str]:
    """Returns the texts of all processes in their order; a collective."""
    if count() == 1:
        return [text]
    data = np.frombuffer(text.encode(), np.uint8)
    lengths = all_gather_integers(len(data))[:, 0]
    padded = np.zeros(max(int(lengths.max()), 1), np.uint8)
    padded[: len(data)] = data
    rows = np.asarray(multihost_utils.process_allgather(padded)).reshape(count(), -1)
    return [bytes(row[:length]).decode() for row, length in zip(rows, lengths, strict=True)]


def broadcast_object(value: Any) -> Any:
    """Returns process 0's value, JSON data, in all processes; a collective."""
    return value if count() == 1 else json.loads(all_gather_text(json.dumps(value if is_first() else None))[0])


def run_on_all(action: Callable[[], T]) -> T:
    """Runs an action in all processes and returns its result if no process raised a UserError; a collective.

    Raises:
      UserError: the error of this process, or else that of the first process that raised one, with its number.
    """
    if count() == 1:
        return action()
    try:
        result, error = action(), None
    except UserError as own:
        error = own
    errors = all_gather_text("" if error is None else json.dumps([type(error).__name__, str(error)]))
    if error is not None:
        raise error
    for process, text in enumerate(errors):
        if text:
            name, message = json.loads(text)
            kinds = {kind.__name__: kind for kind in UserError.__subclasses__()}
            raise kinds.get(name, UserError)(f"process {process}: {message}")
    return result


def is_lost_process(error: BaseException) -> bool:
    """Whether an exception means that another process has ended during a collective."""
    is_backend_error = isinstance(error, (jax.errors.JaxRuntimeError, ValueError)) and not isinstance(error, UserError)
    return is_joined() and is_backend_error and bool(_LOST_PATTERN.search(str(error)))


def exit_immediately(status: int) -> None:
    """Ends the process without waiting for the others; does nothing in a single process."""
    if not is_joined():
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
