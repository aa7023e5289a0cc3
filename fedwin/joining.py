"""Becoming one of several processes that compute a run together, and leaving them."""

import contextlib
import os
import re
import subprocess
import sys
from typing import Any

import jax

from fedwin import hosts
from fedwin.errors import UserError

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
    return _joined and hosts.count() > 1


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
