"""Samplers of available clients, which come and go by chance or by a trace: a file with the rounds of each client."""

import functools
import hashlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Annotated

import numpy as np

from fedwin.data.formats import files
from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry import ranges
from fedwin.registry.ranges import NonNegativeInt, PositiveShare, Range, Share
from fedwin.sampling.base import SAMPLERS, Population, Sampler, size_of_available, sizes_of_available, uniforms

# Up to this many clients, all are put in random order at once.
SMALL = 4096
# Rounds of a Markov chain that are looked back at first; each further look back is twice as long.
FIRST_LOOK = 8
_ZONE_TAG, _DIURNAL_STATE_TAG, _DIURNAL_TAG = 0xD1A1, 0xD1A2, 0xD1A3
_MARKOV_STATE_TAG, _MARKOV_TAG, _TRACE_TAG = 0x3A4C, 0x3A4D, 0xF11E


def random_order(random: np.random.Generator, clients: int, first: int) -> Iterator[np.ndarray]:
    """Yields the numbers of all clients in random order, piece by piece; a short piece does not cost all clients."""
    if clients <= SMALL:
        yield random.permutation(clients)
        return
    seen = np.zeros(0, np.int64)
    # Numbers drawn with replacement are in random order once repeats are left out.
    while 2 * (len(seen) + first) < clients:
        drawn = random.integers(0, clients, first)
        _, places = np.unique(drawn, return_index=True)
        piece = drawn[np.sort(places)]
        piece = piece[~np.isin(piece, seen)]
        seen = np.concatenate([seen, piece])
        first *= 2
        yield piece
    yield random.permutation(np.delete(np.arange(clients), seen))


def available_clients(population: Population, tag: int, available: Callable, chance) -> Sampler:
    """Returns a sampler of |S| clients, uniform without replacement among those that are available in the round.

    If fewer are available, all of them take part; there may be none. Availability is computed for candidates in random
    order until enough are found, so the cost of a round does not depend on the number of clients unless they are rarely
    available.

    Args:
      available: (seed, round, ids int [n]) -> bool [n].
      chance: share of all clients that are available on average, or one for each round of a period, float [T].
    """
    clients, size = population.num_clients, population.clients_per_round
    population.check_clients_per_round()

    def draw(seed, round):
        found, count = [np.zeros(0, np.int64)], 0
        for piece in random_order(generator(seed, tag, round), clients, 2 * size):
            found.append(piece[available(seed, round, piece)])
            count += len(found[-1])
            if count >= size:
                break
        return np.concatenate(found)[:size]

    sizes = sizes_of_available(size, clients, chance)
    return Sampler(draw, clients, size, 0, size_of_available(size, clients, chance), sizes=sizes)


@SAMPLERS.register(
    "diurnal", paper="eichner2019semi", instances=("diurnal:period=4",), size="|S|, or all that are available"
)
def diurnal(
    population: Population,
    *,
    period: Annotated[int, Range(2)],
    low: Share = 0.0,
    high: PositiveShare = 1.0,
    zones: NonNegativeInt = 0,
) -> Sampler:
    """Availability follows the time of day; a round draws |S| of the clients that are available, uniformly.

        P(i available in t) = low + (high - low) (1 + cos(2 pi (t / period - z_i))) / 2

    Clients and rounds are independent given the time zones z_i, which the seed draws. If fewer than |S| are available,
    all of them take part.

    Args:
      period: rounds per day.
      low: probability of being available at the worst time, at most `high`.
      high: probability at the best time.
      zones: number of time zones, z_i in {0, 1/zones, ...}; 1: one for all clients; 0: z_i uniform in [0, 1).

    Source: Eichner et al., Semi-Cyclic Stochastic Gradient Descent, 2019, https://arxiv.org/abs/1904.10120 (the time of
    day as the reason for changing cohorts; the cosine is ours).

    Example:
      >>> population = Population(6, 6, 50, (0,), lambda seed: np.ones(6, int))
      >>> sampler = diurnal(population, period=4, zones=1)
      >>> [len(sampler.cohort(seed=0, round=round).ids) for round in range(8)]
      [6, 3, 0, 4, 6, 3, 0, 2]
    """
    ranges.check_values("sampling diurnal", ranges.Range(0, high), low=low)

    def chance(round, zone):
        return low + (high - low) * (1 + np.cos(2 * np.pi * (round / period - zone))) / 2

    def available(seed, round, clients):
        zone = uniforms(seed, _ZONE_TAG, 0, clients)
        zone = np.floor(zone * zones) / zones if zones else zone
        return uniforms(seed, _DIURNAL_STATE_TAG, round, clients) < chance(round, zone)

    # The cosines of two and more zones cancel.
    mean = chance(np.arange(period), 0.0) if zones == 1 else (low + high) / 2
    return available_clients(population, _DIURNAL_TAG, available, mean)


def states(seed: int, round: int, clients: np.ndarray, up: float, down: float) -> np.ndarray:
    """Returns which clients are available in a round, bool [n]: states of their chains, without other rounds' states.

    Round s applies one of three maps to a client's state, chosen by its random number u_s in [0, 1):

        available            u_s <  min(up, 1 - down)
        not available        u_s >= max(up, 1 - down)
        as before            otherwise, if up + down <= 1
        the other state      otherwise, if up + down >  1

    which are the chain's transition probabilities. The first two do not depend on the state before, so that the newest
    round in which one of them applies decides, together with the number of changes since. On average it is
    1 / (1 - |1 - up - down|) rounds ago. In round 0 states are stationary: available with probability
    up / (up + down).

    Args:
      up: probability that a client that is not available becomes so in the next round.
      down: probability that an available client becomes unavailable in the next round.
    """
    low, high = min(up, 1 - down), max(up, 1 - down)
    changes = up + down > 1
    result, pending = np.zeros(len(clients), bool), np.arange(len(clients))
    end, length = round + 1, FIRST_LOOK
    while len(pending):
        begin = max(end - length, 0)
        numbers = uniforms(seed, _MARKOV_STATE_TAG, np.arange(end - 1, begin - 1, -1)[:, None], clients[pending])
        decides, then = (numbers < low) | (numbers >= high), numbers < low
        if begin == 0:
            decides[-1], then[-1] = True, numbers[-1] < up / (up + down)
        found = decides.any(0)
        ago = np.where(found, decides.argmax(0), end - begin)
        state = then[np.minimum(ago, end - begin - 1), np.arange(len(pending))] & found
        # Rounds in between change the state, or none does.
        result[pending] ^= state ^ (changes & (ago % 2 == 1))
        pending, end, length = pending[~found], begin, 2 * length
    return result


@SAMPLERS.register(
    "markov", paper="rodio2023federated", instances=("markov:up=0.3,down=0.3",), size="|S|, or all that are available"
)
def markov(population: Population, *, up: PositiveShare, down: Share) -> Sampler:
    """Each client comes and goes by a Markov chain; a round draws |S| of those that are available, uniformly.

        P(i available in t+1 | not in t) = up,   P(i not available in t+1 | available in t) = down

    Chains are independent and start in their stationary distribution, up / (up + down) available. If fewer than |S| are
    available, all of them take part. A state is a function of (seed, round, client), computed from the last rounds, 1 /
    (1 - |1 - up - down|) on average, for as many candidates as it takes to find |S|. A run needs no sampler state, and
    a round costs about |S| (up + down) / up times that many random numbers, for any K.

    Args:
      up: probability that a client that is not available becomes so.
      down: probability that an available client becomes unavailable.

    Source: Rodio et al., Federated Learning under Heterogeneous and Correlated Client Availability, 2023,
    https://arxiv.org/abs/2301.04632.

    Example:
      >>> population = Population(6, 2, 50, (0,), lambda seed: np.ones(6, int))
      >>> sampler = markov(population, up=0.1, down=0.2)
      >>> [sampler.cohort(seed=0, round=round).ids.tolist() for round in range(5)]
      [[3], [3], [], [2, 5], [2, 5]]
    """
    available = lambda seed, round, clients: states(seed, round, clients, up, down)
    return available_clients(population, _MARKOV_TAG, available, up / (up + down))


# Larger ends of intervals mean the same.
FOREVER = 1 << 62


def read_trace(path: str, num_clients: int, most: int | None = None) -> tuple[np.ndarray, str]:
    """Reads a trace.

    Args:
      most: largest valid `end`, or None.

    Returns:
      (intervals int64 [n, 3], hash of the file).

    Raises:
      UserError: the file can't be read, or a line is invalid; names the line.
    """
    try:
        content = pathlib.Path(path).expanduser().read_bytes()
    except OSError as error:
        raise UserError(f"sampling file: {path} can't be read ({error.strerror}); check path=.") from error
    lines = dict(files.csv_rows(f"sampling file: {path}", content, ["client", "start", "end"]))
    intervals = [_interval(f"sampling file: {path}, line {n}", line, num_clients, most) for n, line in lines.items()]
    if not intervals:
        raise UserError(f"sampling file: {path} has no line after the header; add lines client,start,end.")
    found = np.minimum(np.array(intervals, object), FOREVER).astype(np.int64)
    order = np.lexsort((found[:, 1], found[:, 0]))
    by_client = found[order]
    again = (by_client[1:, 0] == by_client[:-1, 0]) & (by_client[1:, 1] < by_client[:-1, 2])
    if again.any():
        numbers, first = list(lines), int(np.argmax(again))
        one, other = sorted(numbers[order[place]] for place in (first, first + 1))
        raise UserError(
            f"sampling file: {path}, line {other} overlaps line {one}: client {by_client[first, 0]} is already "
            f"available; merge the lines."
        )
    return found, hashlib.blake2b(content, digest_size=8).hexdigest()


def _interval(place: str, line: list[str], num_clients: int, most: int | None) -> tuple[int, int, int]:
    try:
        client, start, end = (int(field) for field in line)
    except ValueError:
        raise UserError(f"{place}: '{','.join(line)}' must be three integers, client,start,end.") from None
    if not 0 <= client < num_clients:
        raise UserError(f"{place}: there is no client {client}; the federation has clients 0..{num_clients - 1}.")
    if not 0 <= start < end:
        raise UserError(f"{place}: start={start}, end={end} must be 0 <= start < end, the first round without it.")
    if most is not None and end > most:
        raise UserError(f"{place}: end={end} is beyond period={most}; cut the line, or set a larger period.")
    return client, start, end


@SAMPLERS.register("file", size="|S|, or all that are available")
def file(population: Population, *, path: str, period: NonNegativeInt = 0, everyone: bool = False) -> Sampler:
    """A trace, a CSV file with the rounds of each client; a round draws |S| of those available, uniformly.

        client,start,end        client is available in the rounds start <= t < end (0-based), or t mod period
        7,0,12
        7,30,41

    A client may have any number of lines; without one it is never available. If fewer than |S| clients are available,
    all of them take part. The file's hash is part of the run's fingerprint.

    Args:
      path: the CSV file, with the header client,start,end.
      period: rounds after which the trace repeats; 0: never, and it must cover the run.
      everyone: all available clients take part, regardless of clients_per_round.

    Raises:
      UserError: when the file can't be read, a line is invalid, or the trace ends before the run or starts after it.

    Example:
      >>> import tempfile, pathlib
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.csv"
      >>> _ = path.write_text("client,start,end\\n0,0,2\\n1,1,3\\n2,1,2\\n")
      >>> population = Population(3, 2, 4, (0,), lambda seed: np.ones(3, int))
      >>> sampler = file(population, path=str(path), period=3, everyone=True)
      >>> [sorted(sampler.cohort(seed=0, round=round).ids.tolist()) for round in range(4)]
      [[0], [0, 1, 2], [1], [0]]
    """
    trace, digest = read_trace(path, population.num_clients, period or None)
    rounds = population.num_rounds
    length = min(period or int(trace[:, 2].max()), rounds)  # a long period costs no memory
    if length < rounds and not period:
        raise UserError(
            f"sampling file: {path} ends before round {length + 1} of {rounds}; set period={length} to repeat it, or a "
            f"smaller --num_rounds."
        )
    if not everyone:
        population.check_clients_per_round()
    most = population.num_clients if everyone else population.clients_per_round
    come, go = (np.bincount(np.minimum(trace[:, side], length), minlength=length + 1) for side in (1, 2))
    there = np.cumsum(come - go)
    sizes = np.minimum(there[:length], most)[np.arange(rounds) % length]
    if not sizes.any():
        raise UserError(f"sampling file: in {path}, nobody is available in rounds 1..{rounds}; shift its intervals.")

    @functools.lru_cache(2)
    def present(time):
        return np.sort(trace[(trace[:, 1] <= time) & (time < trace[:, 2]), 0])

    def draw(seed, round):
        # Independent of the order of lines.
        return generator(seed, _TRACE_TAG, round).permutation(present(round % length))[:most]

    shares, mean = tuple(np.bincount(sizes) / rounds), float(sizes.mean())
    return Sampler(draw, population.num_clients, int(sizes.max()), int(sizes.min()), mean, digest=digest, sizes=shares)
