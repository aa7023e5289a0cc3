"""Samplers: the clients of each round, a function of (seed, round); client dropout; random numbers on the host."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedwin.errors import UserError, user_code
from fedwin.registry import Choice, Registry

_DROPOUT_TAG = 0xD407


class Population(NamedTuple):
    """Properties of a run that builders of samplers may depend on.

    Attributes:
      num_clients: K, number of all clients.
      clients_per_round: --clients_per_round.
      num_rounds: T, number of rounds.
      seeds: the seeds of the run; one sampler serves all of them.
      sizes: seed -> number of examples of each client, int [K].
    """

    num_clients: int
    clients_per_round: int
    num_rounds: int
    seeds: tuple[int, ...]
    sizes: Callable[[int], np.ndarray]

    def check_clients_per_round(self) -> None:
        """Raises UserError unless 1 <= clients_per_round <= num_clients."""
        if self.clients_per_round < 1:
            raise UserError(f"clients_per_round={self.clients_per_round}: a round needs at least 1 client.")
        if self.clients_per_round > self.num_clients:
            raise UserError(
                f"clients_per_round={self.clients_per_round} is more than the federation's {self.num_clients} clients; "
                f"set --clients_per_round to at most {self.num_clients}."
            )


class Draw(NamedTuple):
    """The clients that the server draws for one round.

    Attributes:
      ids: distinct clients, int32 [n].
      importance: factor in each client's aggregation weight, float [n]; None stands for 1.
      answers: False for a client that drops out, bool [n]; None: all answer.
      staleness: server steps since each client started, int32 [n]; None stands for 0.
      work: share of the local steps that each client takes, float32 [n]; None: that of the round (--local_work).
      seconds: simulated seconds of the round; None: those of its slowest client.
      started: number of clients that have received a model since the previous round; None: all that were drawn.
      dropped: number of updates that arrived too late to be used.
      times: simulated seconds at which asynchronous clients start and arrive, float [n, 2].
    """

    ids: np.ndarray
    importance: np.ndarray | None = None
    answers: np.ndarray | None = None
    staleness: np.ndarray | None = None
    work: np.ndarray | None = None
    seconds: float | None = None
    started: int | None = None
    dropped: int = 0
    times: np.ndarray | None = None

    @property
    def present(self) -> np.ndarray:
        """Which clients answer, bool [n]."""
        return np.ones(len(self.ids), bool) if self.answers is None else self.answers

    @property
    def participants(self) -> np.ndarray:
        """The clients that answer, int32."""
        return self.ids[self.present]

    @property
    def received(self) -> int:
        """Number of clients that received a model."""
        return len(self.ids) if self.started is None else self.started


@dataclasses.dataclass(frozen=True)
class Sampler:
    """Draws the clients of each round.

    `draw` is a function of (seed, round) alone: cohorts are the same for every method, so comparisons are paired, and a
    resumed run needs no state of the sampler.

    Attributes:
      draw: (seed, round) -> Draw or ids int [n]; rounds are 0-based.
      num_clients: K.
      largest: most clients that any round of the run draws; cohorts are padded to it.
      smallest: fewest clients that any round of the run draws; 0 if a round may draw none.
      expected: mean number of clients that a round draws or, if times decide, waits for.
      weighted: whether draws have an importance.
      rate: probability with which every client is drawn independently of the others (Poisson sampling), or None.
      fixed_size: whether every round draws the same number of clients, uniformly without replacement.
      digest: hash of a file that the draws depend on, besides the choice and the federation; '' without one.
      dropout: probability that a drawn client does not answer.
      timed: whether draws have seconds, because times decide who takes part.
      sizes: probability that a round draws n clients, for n = 0 ... largest; None: `expected` in every round.
    """

    draw: Callable[[int, int], Any]
    num_clients: int
    largest: int
    smallest: int
    expected: float
    weighted: bool = False
    rate: float | None = None
    fixed_size: bool = False
    digest: str = ""
    dropout: float = 0.0
    timed: bool = False
    sizes: tuple[float, ...] | None = None

    @property
    def varies(self) -> bool:
        """Whether the number of clients that take part may differ between rounds."""
        return self.smallest < self.largest or self.dropout > 0

    @property
    def participation(self) -> float:
        """Participation ratio C: mean share of all clients that take part in a round."""
        return self.expected * (1 - self.dropout) / self.num_clients

    def cohort(self, seed: int, round: int) -> Draw:
        """Returns the clients that a round draws, and which of them answer.

        Args:
          round: 0-based.

        Raises:
          UserError: a user's sampler draws something other than clients.
        """
        with user_code(self.draw, f"sampling: no clients could be drawn for round {round + 1}"):
            drawn = self.draw(seed, round)
        drawn = drawn if isinstance(drawn, Draw) else Draw(np.asarray(drawn))
        self._check(drawn, round)
        drawn = drawn._replace(ids=np.asarray(drawn.ids, np.int32))
        if not self.dropout:
            return drawn
        return drawn._replace(answers=answers(seed, round, drawn.ids, self.dropout))

    def _check(self, drawn: Draw, round: int) -> None:
        ids = np.asarray(drawn.ids)
        culprit = f"sampling: the draw of round {round + 1}"
        if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
            raise UserError(f"{culprit} must be client numbers, integers [n], not {ids.dtype}{list(ids.shape)}.")
        if ids.size and not (0 <= ids.min() and ids.max() < self.num_clients):
            raise UserError(f"{culprit} must be clients 0..{self.num_clients - 1}, not {ids.min()}..{ids.max()}.")
        if len(set(ids.tolist())) < ids.size:  # for few clients much faster than np.unique
            twice = np.bincount(ids).argmax()
            raise UserError(f"{culprit} has client {twice} twice; draw without replacement.")
        if (drawn.importance is not None) != self.weighted:
            raise UserError(f"{culprit}: a sampler has an importance in every draw and weighted=True, or neither.")
        factors = np.ones(ids.shape) if drawn.importance is None else np.asarray(drawn.importance)
        if factors.shape != ids.shape or not np.all(np.isfinite(factors) & (factors >= 0)):
            raise UserError(f"{culprit}: its importance must be {len(ids)} finite numbers >= 0, one per client.")


# Builders `builder(population, *, option=default, ...) -> Sampler or its draw`. Facts of a sampler:
#   size: cohort size in words.
SAMPLERS = Registry(
    "sampling", columns={"clients of a round": "{size}"}, rule="who takes part", builds=(Sampler, Callable), size="?"
)


def make_sampler(choice: str | Choice, population: Population, dropout: float = 0.0) -> Sampler:
    """Builds a registered sampler.

    A builder may return a plain function (seed, round) -> ids instead of a Sampler; its cohorts have at most
    clients_per_round clients.

    Raises:
      UserError: the choice is invalid, or does not fit the population.

    Example:
      >>> population = Population(100, 10, 50, (0,), lambda seed: np.ones(100, int))
      >>> make_sampler("uniform", population).cohort(0, 0).ids
      array([24, 21, 67, 98, 63, 15, 86, 94, 35, 25], dtype=int32)
    """
    built = SAMPLERS.build(choice, population)
    if not isinstance(built, Sampler):
        population.check_clients_per_round()
        most = population.clients_per_round
        built = Sampler(built, population.num_clients, most, 0, most)
    return dataclasses.replace(built, dropout=dropout)


def _more_than(most: int, clients: int, chance) -> np.ndarray:
    """Returns P(N > n) for n = 0 ... most - 1 and N ~ Binomial(clients, chance), a row per chance."""
    from scipy.special import bdtrc  # takes a third of a second to import

    return bdtrc(np.arange(most), clients, np.reshape(chance, (-1, 1)))


def size_of_available(most: int, clients: int, chance) -> float:
    """Returns E[min(most, N)] for N ~ Binomial(clients, chance), the mean over the chances if there are several."""
    return float(_more_than(min(most, clients), clients, chance).sum(1).mean())


def sizes_of_available(most: int, clients: int, chance) -> tuple[float, ...]:
    """Returns P(min(most, N) = n) for n = 0 ... most, N as for `size_of_available`; most is at most `clients`."""
    above = _more_than(most, clients, chance).mean(0)
    return tuple((-np.diff(above, prepend=1, append=0)).tolist())


def uniforms(seed: int, tag: int, rounds, clients) -> np.ndarray:
    """Returns one random number in [0, 1) per (round, client), independent of which others are asked for.

    It is a hash (the finalizer of SplitMix64, once per argument).

    Args:
      tag: differs between purposes.
      rounds: 0-based rounds, int [...].
      clients: ids, int [...]; both are broadcast against each other.

    Source: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014,
    https://doi.org/10.1145/2660193.2660195.
    """
    state = _mixed(np.array([(seed << 32) + tag], np.uint64))
    state = _mixed(state ^ _mixed(np.atleast_1d(np.asarray(rounds, np.int64)).astype(np.uint64)))
    state = _mixed(state ^ np.atleast_1d(np.asarray(clients, np.int64)).astype(np.uint64))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def answers(seed: int, round: int, clients: np.ndarray, dropout: float) -> np.ndarray:
    """Returns which clients of a round answer, each with probability 1 - dropout, bool [n]."""
    return uniforms(seed, _DROPOUT_TAG, round, clients) >= dropout


def _mixed(x: np.ndarray) -> np.ndarray:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
