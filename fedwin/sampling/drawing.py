"""Samplers that draw from all clients: uniform, Poisson, weighted by size, and groups that take turns."""

import functools

import numpy as np

from fedwin.data.rng import generator
from fedwin.registry import ranges
from fedwin.registry.ranges import NonNegativeInt, PositiveInt, PositiveShare
from fedwin.sampling.base import SAMPLERS, Draw, Population, Sampler

_UNIFORM_TAG, _POISSON_SIZE_TAG, _POISSON_TAG, _WEIGHTED_TAG = 0xC0407, 0x9015, 0x9016, 0x3E1647
_GROUP_TAG, _CYCLIC_TAG = 0xC7C1, 0xC7C2


def cohort(seed: int, round: int, num_clients: int, clients_per_round: int) -> np.ndarray:
    """Returns the ids of one round's clients, int32 [C], uniform without replacement, in drawing order.

    A function of (seed, round) alone: the same for every method, so comparisons are paired, and a resumed run needs no
    sampler state.
    """
    return generator(seed, _UNIFORM_TAG, round).choice(num_clients, clients_per_round, replace=False).astype(np.int32)


def uniform_sampler(num_clients: int, clients_per_round: int) -> Sampler:
    """Returns a sampler of `clients_per_round` clients, uniform without replacement."""
    size, draw = clients_per_round, lambda seed, round: cohort(seed, round, num_clients, clients_per_round)
    return Sampler(draw, num_clients, size, size, size, fixed_size=True)


@SAMPLERS.register("uniform", size="|S|")
def uniform(population: Population) -> Sampler:
    """|S| clients, uniform without replacement (the default).

        P(i in S) = |S| / K

    Example:
      >>> population = Population(100, 3, 50, (0,), lambda seed: np.ones(100, int))
      >>> uniform(population).cohort(seed=0, round=0).ids
      array([72, 27, 92], dtype=int32)
    """
    population.check_clients_per_round()
    return uniform_sampler(population.num_clients, population.clients_per_round)


@SAMPLERS.register(
    "poisson", paper="mironov2019sampled", instances=("poisson:rate=0.5",), size="Binomial(K, rate), may be 0"
)
def poisson(population: Population, *, rate: PositiveShare | None = None) -> Sampler:
    """Every client independently with probability `rate`; the assumption of privacy accounting.

        P(i in S) = rate, independently;   |S| ~ Binomial(K, rate)

    Sizes are drawn first, and then that many clients, uniformly. Cohorts are padded to the largest one of the run; none
    is cut. A wrapper or an algorithm finds the rate in `setting.sampling.rate`.

    Args:
      rate: probability that a client takes part; none = clients_per_round / K.

    Source: Mironov et al., Renyi Differential Privacy of the Sampled Gaussian Mechanism, 2019,
    https://arxiv.org/abs/1908.10530.

    Example:
      >>> population = Population(100, 3, 50, (0,), lambda seed: np.ones(100, int))
      >>> sampler = poisson(population, rate=0.03)
      >>> [len(sampler.cohort(seed=0, round=round).ids) for round in range(8)]
      [2, 4, 1, 1, 4, 2, 2, 4]
    """
    clients = population.num_clients
    if rate is None:
        population.check_clients_per_round()
        rate = population.clients_per_round / clients

    @functools.cache
    def sizes(seed, rounds=population.num_rounds):
        return generator(seed, _POISSON_SIZE_TAG).binomial(clients, rate, rounds)

    def draw(seed, round):
        size = (sizes(seed) if round < population.num_rounds else sizes(seed, round + 1))[round]
        return generator(seed, _POISSON_TAG, round).choice(clients, size, replace=False).astype(np.int32)

    every = np.concatenate([sizes(seed) for seed in population.seeds])
    # A run of empty cohorts is padded to one client.
    return Sampler(draw, clients, max(int(every.max()), 1), int(every.min()), rate * clients, rate=rate)


def inclusion_probabilities(sizes: np.ndarray, clients_per_round: int) -> np.ndarray:
    """Returns the probabilities with which clients are drawn, float64 [K]; they add up to clients_per_round.

        pi_i = min(1, c N_i)        c: such that sum_i pi_i = |S|

    Example:
      >>> inclusion_probabilities(np.array([1, 1, 2, 12]), 2).round(2).tolist()
      [0.25, 0.25, 0.5, 1.0]
    """
    sizes = np.asarray(sizes, np.float64)
    certain = np.zeros(len(sizes), bool)
    while True:
        rest = clients_per_round - certain.sum()
        probabilities = np.where(certain, 1.0, rest * sizes / max(sizes[~certain].sum(), 1.0))
        above = ~certain & (probabilities >= 1)
        if not above.any():
            return probabilities
        certain |= above


def systematic(probabilities: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draws clients with inclusion probabilities [K] that have an integer sum, int [|S|] in random order.

    It is systematic sampling in random order, without replacement.
    """
    certain = np.flatnonzero(probabilities == 1)
    order = random.permutation(np.flatnonzero(probabilities < 1))
    ends = np.cumsum(probabilities[order])
    count = round(probabilities.sum()) - len(certain)
    if count:
        ends[-1] = count  # without rounding
    chosen = order[np.searchsorted(ends, random.random() + np.arange(count), side="right")]
    return random.permutation(np.concatenate([certain, chosen]))


@SAMPLERS.register("weighted", paper=("madow1949theory", "horvitz1952generalization"), size="|S|")
def weighted(population: Population) -> Sampler:
    """|S| clients in proportion to their number of examples, each weighted by the inverse of its probability.

        P(i in S) = pi_i = min(1, c N_i),      aggregation weight  N_i (|S| / K) / pi_i      instead of N_i

    With weighting=samples the mean over the cohort is sum_{i in S} (p_i / pi_i) x_i, the Horvitz-Thompson estimator:
    its expectation is the mean over all clients, sum_i p_i x_i. With weighting=uniform, the weight is (|S| / K) / pi_i
    and the mean over the cohort is a ratio of two unbiased estimators, whose bias falls as 1 / |S|. Sums over the
    cohort that are bookkeeping, such as SCAFFOLD's controls and FedDyn's s, are not reweighted.

    Source: Madow, On the Theory of Systematic Sampling, II, 1949, https://doi.org/10.1214/aoms/1177729988; Horvitz and
    Thompson, A Generalization of Sampling Without Replacement from a Finite Universe, 1952,
    https://doi.org/10.1080/01621459.1952.10483446.

    Example:
      >>> population = Population(4, 2, 50, (0,), lambda seed: np.array([1, 1, 2, 12]))
      >>> drawn = weighted(population).cohort(seed=0, round=0)
      >>> drawn.ids.tolist(), drawn.importance.tolist()
      ([2, 3], [1.0, 0.5])
    """
    clients, size = population.num_clients, population.clients_per_round
    population.check_clients_per_round()

    @functools.cache
    def probabilities(seed):
        return inclusion_probabilities(population.sizes(seed), size)

    def draw(seed, round):
        chances = probabilities(seed)
        ids = systematic(chances, generator(seed, _WEIGHTED_TAG, round))
        return Draw(ids, size / clients / chances[ids])

    return Sampler(draw, clients, size, size, size, weighted=True)


@SAMPLERS.register(
    "cyclic",
    paper=("cho2023convergence", "eichner2019semi"),
    instances=("cyclic:groups=2", "cyclic:groups=2,rounds=2,shuffle=false"),
    size="|S|, at most a group",
)
def cyclic(
    population: Population, *, groups: NonNegativeInt = 0, rounds: PositiveInt = 1, shuffle: bool = True
) -> Sampler:
    """Groups of clients take turns; a round draws |S| clients of its group, uniformly without replacement.

        S_t is a subset of group (t // rounds) mod groups

    Sizes of groups differ by at most 1. A group of at most |S| clients takes part as a whole.

    Args:
      groups: number of groups, at most K; 0: as many as rounds are needed for all clients to take part, ceil(K / |S|).
      rounds: consecutive rounds of a group.
      shuffle: whether the seed assigns clients to groups; otherwise groups are consecutive client numbers.

    Raises:
      UserError: when there are more groups than clients.

    Source: Cho et al., On the Convergence of Federated Averaging with Cyclic Client Participation, 2023,
    https://arxiv.org/abs/2302.03109.

    Example:
      >>> population = Population(6, 2, 50, (0,), lambda seed: np.ones(6, int))
      >>> sampler = cyclic(population, shuffle=False)
      >>> [sampler.cohort(seed=0, round=round).ids.tolist() for round in range(4)]
      [[1, 0], [2, 3], [4, 5], [0, 1]]
    """
    clients, size = population.num_clients, population.clients_per_round
    population.check_clients_per_round()
    groups = groups or -(-clients // size)
    ranges.check_values("sampling cyclic", ranges.Range(1, clients), groups=groups)
    bounds = np.arange(groups + 1) * clients // groups
    sizes = np.minimum(np.diff(bounds), size)

    @functools.cache
    def order(seed):
        return generator(seed, _GROUP_TAG).permutation(clients) if shuffle else np.arange(clients)

    def draw(seed, round):
        group = round // rounds % groups
        members = order(seed)[bounds[group] : bounds[group + 1]]
        return generator(seed, _CYCLIC_TAG, round).permutation(members)[:size]

    shares = tuple(np.bincount(sizes) / groups)
    return Sampler(draw, clients, int(sizes.max()), int(sizes.min()), float(sizes.mean()), sizes=shares)
