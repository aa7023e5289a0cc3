"""Several processes, on one host or many, that compute one run together; with one process all of this does nothing.

Every process runs the same program on the same flags. The cohort is spread over the devices of all of them; what only
one process can have (a run's directory, rows of clients in main memory or in a file) is the first one's.
"""

import contextlib
import json
import os
import pickle
import re
import subprocess
import sys
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


# Seconds that a process waits for the others to start, and after which one that is silent counts as dead.
PATIENCE = 300
SILENCE = 30
# What the backends say when another process has ended in the middle of an exchange.
_LOST = re.compile(r"gloo|nccl|rccl|coordination service|connection (closed|reset)|deadline_exceeded|unavailable", re.I)
LOST = "error: another process of this run has ended; the same command on all of them goes on from the last checkpoint."

# jax ends a process whose coordinator has died from a thread of C++: with lines of its own and an abort, which no
# handler of Python's sees. A process that outlives it passes on what is written to descriptor 2 and makes one line of
# those.
_FILTER = r"""
import re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
told, dying = sys.argv[1].encode() + b"\n", False
fatal = re.compile(rb"F\d{4} .*Terminating process because the JAX distributed service")
noise = re.compile(
    rb"[EWI]\d{4} .*(coordination_service_agent|preemption_sync_manager)\.cc|Additional GRPC error|:[A-Z]+:|"
    rb"=== Source Location|external/xla|\. This is only expected|$"
)
for line in iter(sys.stdin.buffer.readline, b""):
    if dying or noise.match(line):
        continue
    if fatal.match(line) or line == told:
        line, dying = told, True
    sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()
"""

_joined = False


def join(address: str | None = None, num_processes: int | None = None, process_id: int | None = None) -> None:
    """Joins the other processes of a run; must come before the first computation.

    Args:
      address: host:port of the first process; None, like the others: what SLURM, Open MPI or the Cloud TPU says.
      num_processes: how many there are.
      process_id: this one's number, from 0.

    Raises:
      UserError: arguments that don't go together, or the others can't be reached.
    """
    global _joined
    if _joined:
        return
    given = (address is not None, num_processes is not None, process_id is not None)
    if any(given) and not all(given):
        raise UserError(
            "coordinator_address, num_processes and process_id go together; give all three, or --distributed alone "
            "where the cluster knows them."
        )
    if all(given):
        _check(address, num_processes, process_id)
    # It would take SIGTERM from runs.interruption, and act on it without saving.
    jax.config.update("jax_enable_preemption_service", False)
    # The default on a CPU knows one process only.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            address, num_processes, process_id, initialization_timeout=PATIENCE, heartbeat_timeout_seconds=SILENCE
        )
    except (ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:200].rstrip(".")
        remedy = "check --coordinator_address, --num_processes and --process_id, and that all processes are started"
        raise UserError(f"the processes could not be joined ({said}); {remedy}.") from error
    _joined = True
    _filter_stderr()


def _check(address: Any, num_processes: Any, process_id: Any) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(f"coordinator_address={address} is not HOST:PORT, e.g. node0:12345.")
    if num_processes < 1:
        raise UserError(f"num_processes={num_processes} must be at least 1.")
    if not 0 <= process_id < num_processes:
        raise UserError(f"process_id={process_id} must be from 0 to {num_processes - 1} (--num_processes minus 1).")


def _filter_stderr() -> None:
    """Lets what C++ writes to standard error pass through a process that shortens it; Python's own goes as before."""
    sys.stderr.flush()
    own = os.dup(2)
    reader = subprocess.Popen(
        [sys.executable, "-S", "-c", _FILTER, LOST], stdin=subprocess.PIPE, stderr=own, start_new_session=True
    )
    assert reader.stdin is not None
    os.dup2(reader.stdin.fileno(), 2)
    reader.stdin.close()
    sys.stderr = os.fdopen(own, "w", buffering=1)


def is_joined() -> bool:
    """Whether this process is one of several."""
    return _joined and count() > 1


def is_lost(error: BaseException) -> bool:
    """Whether an exception says that another process has ended in the middle of an exchange."""
    known = isinstance(error, (jax.errors.JaxRuntimeError, ValueError)) and not isinstance(error, UserError)
    return is_joined() and known and bool(_LOST.search(str(error)))


def tell_lost() -> None:
    """Says on standard error, once, that another process has ended."""
    os.write(2, f"{LOST}\n".encode())


def leave_at_once(status: int) -> None:
    """Ends the process without waiting for the others, who would not come; does nothing in a process that is alone."""
    if not is_joined():
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
