"""Servers that do not wait for all clients: asynchronous ones, and synchronous ones that leave out stragglers.

The clients' simulated seconds alone decide which clients a server step gets, and in which order. This is computed on
the host as a function of (seed, step); it is not saved, and a resumed run computes it again.
"""

import functools
import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fedwin.errors import UserError
from fedwin.sampling.base import Draw, Sampler, answers, size_of_available
from fedwin.sampling.drawing import cohort


class Jobs(NamedTuple):
    """Time and work of clients that are drawn together.

    Attributes:
      seconds: time from the start of each client to its arrival, float [n].
      work: share of the local steps that each takes, float32 [n]; None: all of them.
    """

    seconds: np.ndarray
    work: np.ndarray | None = None


# (seed, round of the draw, ids int [n], their work if the draw decides it) -> Jobs.
JobsOf = Callable[[int, int, np.ndarray, np.ndarray | None], Jobs]


class _Started(NamedTuple):
    """A client in training, ordered by arrival; those that arrive together are ordered by their start."""

    arrives: float
    order: int
    id: int
    version: int
    work: float | None
    answers: bool
    starts: float


def asynchronous(
    num_clients: int, size: int, concurrency: int, max_staleness: int, dropout: float, timeout: float, jobs: JobsOf
) -> Sampler:
    """Returns the sampler of an asynchronous server, whose round is a server step with the updates that it buffered.

    `concurrency` clients are always in training, each from the model that was current when it started. A client that
    arrives puts its update into the buffer; the server steps once that has `size` of them, and the next client in the
    queue starts. The queue is uniform cohorts of `concurrency` clients, one after another, without those in training or
    in the buffer. If all clients take the same time and size = concurrency, steps are synchronous rounds.

    Args:
      num_clients: K.
      size: updates per server step.
      concurrency: number of clients in training.
      max_staleness: greatest staleness of an update that is used; others are dropped.
      dropout: probability that a client sends no update; the next one starts when it would have arrived.
      timeout: minimum seconds until then.
      jobs: time and work of clients.

    Raises:
      UserError: there are too few clients.
    """
    if concurrency + size - 1 > num_clients:
        raise UserError(
            f"asynchronous: up to {concurrency + size - 1} clients are in training (concurrency={concurrency}) or in "
            f"the buffer (size={size}), and the federation has {num_clients}; lower concurrency or size."
        )

    def line(seed: int) -> Iterator[tuple[int, float, float | None, bool]]:
        for number in itertools.count():
            ids = cohort(seed, number, num_clients, concurrency)
            seconds, work = jobs(seed, number, ids, None)
            comes = answers(seed, number, ids, dropout)
            seconds = np.where(comes, seconds, np.maximum(seconds, timeout))
            shares = [None] * len(ids) if work is None else work.tolist()
            yield from zip(ids.tolist(), seconds.tolist(), shares, comes.tolist(), strict=True)

    def steps(seed: int) -> Iterator[Draw]:
        waiting, order = line(seed), itertools.count()
        training: list[_Started] = []
        buffer: list[_Started] = []
        busy: set[int] = set()
        now = before = 0.0
        version = started = dropped = 0
        while True:
            while len(training) < concurrency:
                id, seconds, work, comes = next(waiting)
                if id not in busy:
                    busy.add(id)
                    heapq.heappush(training, _Started(now + seconds, next(order), id, version, work, comes, now))
                    started += 1
            now = training[0].arrives
            # All that arrive now, before anybody starts.
            while training and training[0].arrives == now:
                client = heapq.heappop(training)
                if client.answers and version - client.version <= max_staleness:
                    buffer.append(client)
                else:
                    busy.remove(client.id)
                    dropped += client.answers
                if len(buffer) == size:
                    yield _step(buffer, version)._replace(seconds=now - before, started=started, dropped=dropped)
                    busy.difference_update(client.id for client in buffer)
                    before, version, started, dropped = now, version + 1, 0, 0
                    buffer.clear()

    @functools.cache
    def history(seed: int) -> tuple[list[Draw], Iterator[Draw]]:
        return [], steps(seed)

    def draw(seed: int, step: int) -> Draw:
        known, coming = history(seed)
        known += itertools.islice(coming, max(step + 1 - len(known), 0))
        return known[step]

    return Sampler(draw, num_clients, size, size, size, timed=True)


def _step(buffer: list[_Started], version: int) -> Draw:
    column = lambda values, dtype: np.array(list(values), dtype)
    return Draw(
        column((client.id for client in buffer), np.int32),
        staleness=column((version - client.version for client in buffer), np.int32),
        work=None if buffer[0].work is None else column((client.work for client in buffer), np.float32),
        times=column(((client.starts, client.arrives) for client in buffer), float),
    )


def greatest_staleness(sampler: Sampler, seeds: tuple[int, ...], num_rounds: int) -> int:
    """Returns the greatest staleness of any update that the run of any seed uses."""
    draws = (sampler.cohort(seed, round) for seed in seeds for round in range(num_rounds))
    return max(0 if draw.staleness is None else int(draw.staleness.max()) for draw in draws)


def first_to_arrive(sampler: Sampler, most: int, deadline: float, timeout: float, jobs: JobsOf) -> Sampler:
    """Returns a sampler of the first `most` clients of each draw that arrive in time; the server waits for no others.

    Args:
      sampler: draws the clients that start.
      most: clients that take part.
      deadline: seconds after which the server waits no longer; 0: never.
      timeout: minimum seconds of a round with fewer clients than `most`, if there is no deadline.
      jobs: time and work of clients.
    """

    def draw(seed: int, round: int) -> Draw:
        drawn = sampler.cohort(seed, round)
        seconds = jobs(seed, round, drawn.ids, drawn.work).seconds
        arrive = seconds <= (deadline or np.inf)
        if drawn.answers is not None:
            arrive &= drawn.answers
        first = np.sort(np.argsort(np.where(arrive, seconds, np.inf), kind="stable")[: min(most, arrive.sum())])
        slowest = float(seconds[first].max(initial=0.0))
        if len(first) < min(most, len(drawn.ids)):
            slowest = deadline or max(slowest, timeout)
        importance, work = (None if of_all is None else of_all[first] for of_all in (drawn.importance, drawn.work))
        return Draw(drawn.ids[first], importance, work=work, seconds=slowest, started=len(drawn.ids))

    least = 0 if deadline or sampler.dropout else min(most, sampler.smallest)
    # A deadline is not counted: which clients it leaves out depends on the seed, and on the messages of the algorithm.
    answering = lambda drawn: size_of_available(most, drawn, 1 - sampler.dropout)
    sizes = {round(sampler.expected): 1.0} if sampler.sizes is None else dict(enumerate(sampler.sizes))
    expected = float(sum(share * answering(size) for size, share in sizes.items()))
    weighted, digest, largest = sampler.weighted, sampler.digest, min(most, sampler.largest)
    return Sampler(draw, sampler.num_clients, largest, least, expected, weighted, digest=digest, timed=True)
