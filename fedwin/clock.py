"""Simulated clock: the seconds that a round would take on clients with given networks and processors.

    t_i = trips latency + down_i / b_i + J_i s_i + up_i / u_i        client i; bytes over bytes per second, J_i steps
    round = max_i t_i                                                a synchronous server waits for the slowest client

It runs on the host, uses counted bytes and actual numbers of local steps, and never changes training.
"""

import functools
from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np

from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.local import read_columns
from fedwin.registry import Registry
from fedwin.registry.ranges import NonNegative, Positive, Range
from fedwin.sampling import uniforms

_TAG = 0xC10C4


class Load(NamedTuple):
    """Work and traffic of the clients of a round.

    Attributes:
      steps: J_i, int [n].
      down: bytes that each client receives.
      up: bytes that each client sends.
      trips: number of times that the server sends and waits in a round, one per phase with clients.
      round: the round in which the clients are drawn, 0-based.
    """

    steps: np.ndarray
    down: int
    up: int
    trips: int = 1
    round: int = 0


class Clock(NamedTuple):
    """A simulated clock.

    Attributes:
      seconds: (seed, ids int [n], Load) -> seconds of each client, float [n].
      timeout: seconds that the server waits in a round in which a client does not answer.
    """

    seconds: Callable[[int, np.ndarray, Load], np.ndarray]
    timeout: float = 0.0

    def of_clients(self, seed: int, ids: np.ndarray, load: Load) -> np.ndarray:
        """Returns the seconds of each client, float [n]; UserError unless they are finite and not negative."""
        seconds = np.asarray(self.seconds(seed, ids, load))
        if seconds.shape != ids.shape or not np.all(np.isfinite(seconds) & (seconds >= 0)):
            raise UserError(f"clock: its seconds must be {len(ids)} finite numbers >= 0, one per client.")
        return seconds

    def round(self, seed: int, ids: np.ndarray, load: Load, missing: int = 0) -> float:
        """Returns the seconds of a round, which are those of its slowest client; `missing` clients do not answer."""
        slowest = float(self.of_clients(seed, ids, load).max(initial=0.0))
        return max(slowest, self.timeout) if missing else slowest


# Builders have the signature builder(*, option=...) -> Clock.
CLOCKS = Registry("clock", builds=Clock)


@functools.lru_cache(128)
def _normal(seed: int, count: int) -> np.ndarray:
    """Returns two normal numbers for each client [count, 2]; the first clients' numbers do not depend on `count`."""
    return generator(seed, _TAG).standard_normal((count, 2))


def factors(seed: int, ids: np.ndarray, spread: float) -> np.ndarray:
    """Returns the factors of the clients' networks and processors, independent of each other, float [n, 2].

    They are log-normal around 1, the same in every round; spread is the standard deviation of the logarithm.
    """
    # Powers of two, so that few arrays are drawn and cached.
    count = 1 << int(ids.max(initial=0)).bit_length()
    return np.exp(spread * _normal(seed, count)[ids])


@CLOCKS.register("bandwidth")
def bandwidth(
    *,
    up: Positive = 1e6,
    down: Positive = 1e7,
    compute: NonNegative = 0.01,
    latency: NonNegative = 0.0,
    spread: Annotated[float, Range(0, 10)] = 0.0,
    timeout: NonNegative = 0.0,
) -> Clock:
    """Bandwidth: t_i = trips latency + bytes / bandwidth + J_i compute, on clients of equal or log-normal speeds.

        t_i = trips latency + (down_i / down + up_i / up) / v_i + J_i compute / w_i,   log v_i, log w_i ~ N(0, spread^2)

    Args:
      up: bytes per second from client to server.
      down: bytes per second from server to client.
      compute: seconds per local step; for a method with two gradients per step, twice FedAvg's.
      latency: seconds per trip from server to client and back.
      spread: standard deviation of the logarithm of a client's network and processor speed, drawn once per client.
      timeout: minimum seconds of a round that waits for a client that does not answer (--dropout), without --deadline.

    Example:
      >>> load = Load(np.array([5, 10]), down=2_000, up=1_000)
      >>> bandwidth(up=1e3, down=1e3, compute=0.1, latency=0.5).round(0, np.array([3, 8]), load)
      4.5
    """

    def seconds(seed: int, ids: np.ndarray, load: Load) -> np.ndarray:
        network, processor = factors(seed, ids, spread).T if spread else (1.0, 1.0)
        transfer = (load.down / down + load.up / up) / network
        return load.trips * latency + transfer + load.steps * compute / processor

    return Clock(seconds, timeout)


@CLOCKS.register("file")
def file(*, path: str, latency: NonNegative = 0.0, timeout: NonNegative = 0.0) -> Clock:
    """Each client's speeds from a CSV file, such as measured ones.

    Args:
      path: file with the header client,up,down,compute and a line per client: bytes/s, bytes/s, seconds per local step.
      latency: seconds per trip from server to client and back.
      timeout: minimum seconds of a round that waits for a client that does not answer (--dropout), without --deadline.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as table:
      ...     print("client,up,down,compute\\n3,1e3,1e3,0.1", file=table, flush=True)
      ...     file(path=table.name).round(0, np.array([3]), Load(np.array([10]), down=2_000, up=1_000))
      4.0
    """
    own = read_columns(path, "up", "down", "compute")
    for client, (up, down, compute) in own.items():
        if up <= 0 or down <= 0 or compute < 0:
            raise UserError(f"clock 'file': {path} gives client {client} a speed that is not positive; correct it.")

    def seconds(seed: int, ids: np.ndarray, load: Load) -> np.ndarray:
        missing = [int(client) for client in ids if int(client) not in own]
        if missing:
            raise UserError(f"clock 'file': {path} has no line for client {missing[0]}; give every client one.")
        up, down, compute = np.array([own[int(client)] for client in ids]).reshape(-1, 3).T
        return load.trips * latency + load.down / down + load.up / up + load.steps * compute

    return Clock(seconds, timeout)


@CLOCKS.register("exponential")
def exponential(*, mean: Positive = 1.0, timeout: NonNegative = 0.0) -> Clock:
    """Exponential: t_i ~ Exp(mean), independent of each other, of bytes and of steps, as in a memoryless queue.

    Args:
      mean: mean seconds of a client.
      timeout: minimum seconds of a round that waits for a client that does not answer (--dropout), without --deadline.

    Example:
      >>> load = Load(np.ones(2000), 1, 1, round=3)
      >>> float(round(exponential(mean=2.0).seconds(0, np.arange(2000), load).mean(), 1))
      2.0
    """

    def seconds(seed: int, ids: np.ndarray, load: Load) -> np.ndarray:
        return -mean * np.log1p(-uniforms(seed, _TAG, load.round, ids))

    return Clock(seconds, timeout)
