"""Samplers of available clients: clients that come and go draw their cohort among those that are there."""

from collections.abc import Callable, Iterator
from typing import Annotated

import numpy as np

from fedwin.data.rng import generator
from fedwin.registry import ranges
from fedwin.registry.ranges import NonNegativeInt, PositiveShare, Range, Share
from fedwin.sampling.base import SAMPLERS, Population, Sampler, check_clients_per_round, uniforms

# Up to this many clients, all are put in random order at once.
SMALL = 4096
# Rounds of a Markov chain that are looked back at first; each further look back is twice as long.
FIRST_LOOK = 8
_ZONE_TAG, _DIURNAL_STATE_TAG, _DIURNAL_TAG = 0xD1A1, 0xD1A2, 0xD1A3
_MARKOV_STATE_TAG, _MARKOV_TAG = 0x3A4C, 0x3A4D


def random_order(random: np.random.Generator, clients: int, first: int) -> Iterator[np.ndarray]:
    """Yields the numbers of all clients in random order, piece by piece; a short piece does not cost all clients.

    Args:
      random: the random numbers.
      clients: K.
      first: about the length of the first piece.
    """
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
    rest = np.ones(clients, bool)
    rest[seen] = False
    yield random.permutation(np.flatnonzero(rest))


def available_clients(population: Population, tag: int, available: Callable) -> Sampler:
    """Returns a sampler of |S| clients, uniform without replacement among those that are available in the round.

    Where fewer are available, all of them take part, perhaps nobody. Availability is computed for candidates in random
    order, until enough are found: the cost of a round does not depend on the number of clients unless they are rarely
    available.

    Args:
      population: the clients and rounds of the run.
      tag: of the sampler's random numbers.
      available: (seed, round, ids int [n]) -> bool [n].
    """
    clients, size = population.num_clients, population.clients_per_round
    check_clients_per_round(size, clients)

    def draw(seed, round):
        found, count = [np.zeros(0, np.int64)], 0
        for piece in random_order(generator(seed, tag, round), clients, 2 * size):
            found.append(piece[available(seed, round, piece)])
            count += len(found[-1])
            if count >= size:
                break
        return np.concatenate(found)[:size]

    return Sampler(draw, clients, size, 0, size)


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
      period: rounds of a day.
      low: probability of being available at the worst time, at most `high`.
      high: probability at the best time.
      zones: number of time zones, z_i in {0, 1/zones, ...}; 1: one for all clients; 0: z_i uniform in [0, 1).

    Source: Eichner et al., Semi-Cyclic Stochastic Gradient Descent, 2019, https://arxiv.org/abs/1904.10120 (the time of
    day as the reason of changing cohorts; the cosine is ours).

    Example:
      >>> population = Population(6, 6, 50, (0,), lambda seed: np.ones(6, int))
      >>> sampler = diurnal(population, period=4, zones=1)
      >>> [len(sampler.cohort(seed=0, round=round).ids) for round in range(8)]
      [6, 3, 0, 4, 6, 3, 0, 2]
    """
    ranges.check_values("sampling diurnal", ranges.Range(0, high), low=low)

    def available(seed, round, clients):
        zone = uniforms(seed, _ZONE_TAG, 0, clients)
        zone = np.floor(zone * zones) / zones if zones else zone
        chance = low + (high - low) * (1 + np.cos(2 * np.pi * (round / period - zone))) / 2
        return uniforms(seed, _DIURNAL_STATE_TAG, round, clients) < chance

    return available_clients(population, _DIURNAL_TAG, available)


def states(seed: int, round: int, clients: np.ndarray, up: float, down: float) -> np.ndarray:
    """Returns which clients are available in a round, bool [n]: states of their chains, without those of other rounds.

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
      round: 0-based.
      clients: ids, int [n].
      up: probability that a client that is not available is so in the next round.
      down: probability that an available client is not so in the next round.
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
    available, all of them take part. A state is a function of (seed, round, client), computed from the last rounds,
    1 / (1 - |1 - up - down|) on average, for as many candidates as it takes to find |S|: a run needs no state of the
    sampler, and a round costs about |S| (up + down) / up times that many random numbers, whatever K.

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
    return available_clients(
        population, _MARKOV_TAG, lambda seed, round, clients: states(seed, round, clients, up, down)
    )
