"""Schedules: which rounds are evaluated and saved, where dispatches end, which clients take part."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np

from fedwin.core import Cohort
from fedwin.data.federation import Federation
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.local import LocalWork, work_of_cohort
from fedwin.runs.config import Config
from fedwin.sampling import Draw, Sampler

# Blocks of cohorts in memory: the one in training and the one that is prefetched.
LATEST_BLOCKS = 2


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The rounds after which a run evaluates, saves, and ends a dispatch.

    Attributes:
      config: the resolved config; dispatches are padded to its rounds_per_dispatch.
      window_rounds: a lower maximum for windows that are offloaded from the device, or None.
      ends_at_evaluations: whether dispatches end at every evaluation, because a callback may stop the seed there.
    """

    config: Config
    window_rounds: int | None = None
    ends_at_evaluations: bool = False

    @property
    def num_rounds(self) -> int:
        """The number of rounds."""
        return self.config.num_rounds

    def clients_evaluated(self, completed: int) -> bool:
        """Returns whether the model after `completed` rounds is evaluated on each client's own examples."""
        every = self.config.eval_clients_every
        at_end = completed == self.num_rounds
        return bool(self.config.eval_clients and completed) and (at_end or (every > 0 and completed % every == 0))

    def client_evaluations(self, completed: int) -> int:
        """Returns how many of the rounds after the first `completed` are evaluated on each client's own examples."""
        return sum(self.clients_evaluated(after) for after in range(completed + 1, self.num_rounds + 1))

    def evaluated(self, completed: int) -> bool:
        """Returns whether the model after `completed` rounds is evaluated."""
        return (
            completed % self.config.eval_every == 0
            or completed > self.num_rounds - self.config.final_evals
            or completed == self.num_rounds
            or self.clients_evaluated(completed)
        )

    def evaluations(self, completed: int) -> int:
        """Returns how many of the rounds after the first `completed` are evaluated."""
        return sum(self.evaluated(after) for after in range(completed + 1, self.num_rounds + 1))

    def describe(self, first: int = 0) -> str:
        """Returns how often a seed that starts after `first` rounds is evaluated: '50 rounds with 12 evaluations'."""
        count = f"{self.num_rounds:,} round{'s' if self.num_rounds > 1 else ''} with {1 + self.evaluations(first):,}"
        last, every = min(self.config.final_evals, self.num_rounds), self.config.eval_every
        if every == 1:
            return f"{count} evaluations, every round from round {first} on"
        ends = f"each of the last {last} (--final_evals)" if last > 1 else "the last"
        return f"{count} evaluations, every {every} rounds from round {first} on and after {ends}"

    def checkpointed(self, completed: int) -> bool:
        """Returns whether a checkpoint is saved after `completed` rounds."""
        if completed == self.num_rounds or completed in self.config.keep_rounds:
            return True
        return self.config.checkpoint_every > 0 and completed % self.config.checkpoint_every == 0

    def dispatch_end(self, completed: int, most: int) -> int:
        """Returns the round at which the dispatch that starts after `completed` rounds ends, of at most `most` rounds.

        Dispatches also end on multiples of rounds_per_dispatch: the size that a dispatch is padded to then depends on
        the round alone, and a resumed run computes the same bits.
        """
        config = self.config
        periods = [config.rounds_per_dispatch, config.checkpoint_every, config.eval_clients_every]
        ends = [self.num_rounds, completed + min(most, self.longest)]
        if self.ends_at_evaluations:
            periods.append(config.eval_every)
            ends.append(max(completed, self.num_rounds - config.final_evals) + 1)
        ends += [(completed // every + 1) * every for every in periods if every]
        return min([*ends, *(round for round in config.keep_rounds if round > completed)])

    @property
    def longest(self) -> int:
        """Maximum number of rounds of any dispatch."""
        most = self.config.rounds_per_dispatch
        return min(most, self.window_rounds or most)


class CohortSource(Protocol):
    """The cohorts of a run: a CohortSchedule, or the GroupCohorts of vmapped seeds."""

    @property
    def schedule(self) -> Schedule:
        """The rounds of a run."""

    def cohorts(self, completed: int, end: int) -> tuple[Cohort, int]:
        """Returns (cohorts [R_max, ...], n_max) of rounds `completed` .. `end` - 1; other rounds have no clients.

        Rows and slots of the cohorts are the clients' numbers; examples and client table replace them.
        """


class Block(NamedTuple):
    """The cohorts of the rounds between two multiples of rounds_per_dispatch.

    Attributes:
      first: the first round.
      draws: the draw of every round.
      shape: (R_max, width), of cohorts.
    """

    first: int
    draws: tuple[Draw, ...]
    shape: tuple[int, int]

    @property
    def participants(self) -> np.ndarray:
        """The clients that take part in any of the rounds, int [n]; once per round."""
        return np.concatenate([np.zeros(0, np.int32), *(draw.participants for draw in self.draws)])

    def field(self, name: str, completed: int, end: int, filling: float, dtype: Any) -> Any:
        """Returns a field of the draws of rounds `completed` .. `end` - 1, [R_max, width]; None if no draw has it.

        A draw without it has `filling`. All draws of the block decide, so that dispatches may be cut anywhere.
        """
        if all(getattr(draw, name) is None for draw in self.draws):
            return None
        values = np.full(self.shape, filling, dtype)
        for row, draw in enumerate(self.draws[completed - self.first : end - self.first]):
            if (own := getattr(draw, name)) is not None:
                values[row, : len(draw.ids)] = own
        return values


class CohortSchedule:
    """The cohorts of one seed, padded to the width that the strategy needs.

    Args:
      seed: decides, with the round, which clients are drawn.
      sampler: draws them.
      local_work: which share of their local steps they take; None: all of them.
    """

    def __init__(
        self,
        federation: Federation,
        schedule: Schedule,
        strategy: Strategy,
        seed: int,
        sampler: Sampler,
        local_work: LocalWork | None = None,
    ):
        self.federation, self.schedule, self.seed = federation, schedule, seed
        self.sampler, self.local_work = sampler, local_work
        self.width = strategy.multiple(sampler.largest)
        # A block is used twice: for the prefetch of its dispatch, and for the dispatch itself.
        self._cached_block = functools.lru_cache(LATEST_BLOCKS)(self._draw_block)

    def block(self, completed: int) -> Block:
        """Returns the block that contains round `completed`."""
        return self._cached_block(completed // self.schedule.config.rounds_per_dispatch)

    def _draw_block(self, number: int) -> Block:
        length = self.schedule.config.rounds_per_dispatch
        first = number * length
        rounds = range(first, min(first + length, self.schedule.num_rounds))
        return Block(first, tuple(self._draw(round) for round in rounds), (length, self.width))

    def _draw(self, round: int) -> Draw:
        """Returns the draw of a round, with the work of those that answer; UserError if it has too many clients."""
        draw, sampler = self.sampler.cohort(self.seed, round), self.sampler
        if not sampler.smallest <= len(draw.ids) <= sampler.largest:
            raise UserError(
                f"sampling: round {round + 1} has {len(draw.ids)} clients, and its sampler announces "
                f"{sampler.smallest} to {sampler.largest} (a plain function: at most --clients_per_round); correct its "
                f"smallest or largest."
            )
        if self.local_work is None or draw.work is not None:
            return draw
        work = np.ones(len(draw.ids), np.float32)
        work[draw.present] = work_of_cohort(self.local_work, self.seed, round, draw.participants)
        return draw._replace(work=work)

    def draws(self, first: int, end: int) -> list[Draw]:
        """Returns the draws of the 0-based rounds `first` .. `end` - 1."""
        blocks = ((round, self.block(round)) for round in range(first, end))
        return [block.draws[round - block.first] for round, block in blocks]

    def cohorts(self, completed: int, end: int) -> tuple[Cohort, int]:
        """Returns (cohorts [R_max, width], n_max) of rounds `completed` .. `end` - 1; other rounds have no clients."""
        block = self.block(completed)
        field = lambda name, filling, dtype: block.field(name, completed, end, filling, dtype)
        ids, present = field("ids", 0, np.int32), field("present", False, bool)
        factors, work = field("importance", 1, jnp.result_type(float)), field("work", 1, np.float32)
        size = present.sum(-1, dtype=np.int32) if self.sampler.varies else None
        # The bucket is that of the whole block, so that it does not depend on where a dispatch was cut.
        bucket = self.federation.bucket(block.participants)
        others = {"size": size, "staleness": field("staleness", 0, np.int32)}
        return Cohort.of(ids, present, importance=factors, work=work, **others), bucket


class Attendance:
    """Counts the clients of a seed's rounds, their bytes and, with a clock, their simulated seconds.

    Args:
      cohorts: cohorts of the seed.
      bytes_per_client: bytes that a client receives and sends in a round.
      completed: rounds that were completed before.
      saved: `state` of the checkpoint that the seed continues from; {} without one.
      seconds: (0-based round, its draw) -> its simulated seconds; None without a clock.

    Attributes:
      varies: whether the number or the arrival of clients varies; if so, evaluations and checkpoints have the counts.
    """

    def __init__(
        self,
        cohorts: CohortSchedule,
        bytes_per_client: tuple[int, int] = (0, 0),
        completed: int = 0,
        saved: Mapping[str, Any] = MappingProxyType({}),
        seconds: Callable[[int, Draw], float] | None = None,
    ):
        self.cohorts, self.bytes_per_client, self._seconds_of = cohorts, bytes_per_client, seconds
        self.varies = cohorts.sampler.varies or cohorts.sampler.timed
        # A seed that has ended has counted fewer rounds than the others of its group have completed.
        state = saved.get("simulated", {}) | saved.get("attendance", {})
        self._rounds = state.get("rounds", completed)
        self._empty, self._dropped = state.get("empty", 0), state.get("dropped", 0)
        self._sizes: list[int] = list(state.get("sizes", ()))
        self._staleness: list[int] = list(state.get("staleness", ()))
        self._bytes: Sequence[int] = saved.get("bytes", (0, 0))
        self._seconds: float = state.get("seconds", 0.0)

    def _advance(self, completed: int) -> None:
        for round, draw in enumerate(self.cohorts.draws(self._rounds, completed), self._rounds):
            answered = len(draw.participants)
            # A client that does not answer has received the model.
            clients = draw.received, answered + draw.dropped
            self._bytes = [n + m * each for n, m, each in zip(self._bytes, clients, self.bytes_per_client, strict=True)]
            self._empty, self._dropped = self._empty + (answered == 0), self._dropped + draw.dropped
            if self._seconds_of is not None:
                self._seconds += self._seconds_of(round, draw)
            self._sizes.append(answered)
            self._staleness += [] if draw.staleness is None else draw.staleness.tolist()
        self._rounds = max(self._rounds, completed)

    def bytes(self, completed: int) -> Sequence[int]:
        """Returns the bytes that clients received and sent in the first `completed` rounds."""
        self._advance(completed)
        return self._bytes

    def evaluated(self, completed: int) -> dict[str, Any]:
        """Returns the fields of an evaluation: simulated seconds with a clock, and others where the clients vary.

        These are the empty rounds so far and the sizes of cohorts since the last evaluation; for an asynchronous run,
        the updates dropped so far and the mean and greatest staleness since then.
        """
        self._advance(completed)
        sizes, self._sizes, staleness, self._staleness = self._sizes, [], self._staleness, []
        simulated = {} if self._seconds_of is None else {"simulated_seconds": self._seconds}
        if not self.varies:
            return simulated
        late = {}
        if staleness:
            late = {"mean_staleness": float(np.mean(staleness)), "greatest_staleness": max(staleness)}
            late["dropped_updates"] = self._dropped
        return simulated | {"empty_rounds": self._empty, "cohort_sizes": sizes} | late

    @property
    def empty_rounds(self) -> int | None:
        """Number of rounds without a participant so far; None where the clients do not vary."""
        return self._empty if self.varies else None

    def is_empty(self, completed: int, count: int) -> np.ndarray:
        """Returns which of the `count` rounds after the first `completed` have no participant, bool [count]."""
        return np.array([not len(draw.participants) for draw in self.cohorts.draws(completed, completed + count)], bool)

    def state(self, completed: int) -> dict[str, Any]:
        """Returns the counts after `completed` rounds as a checkpoint stores them, JSON data."""
        state: dict[str, Any] = {"bytes": self.bytes(completed)}
        if self.varies:
            since = {"sizes": self._sizes} | ({"staleness": self._staleness} if self._staleness else {})
            counts = {"rounds": self._rounds, "empty": self._empty}
            state["attendance"] = counts | since | ({"dropped": self._dropped} if self._dropped else {})
        if self._seconds_of is not None:
            state["simulated"] = {"seconds": self._seconds, "rounds": self._rounds}
        return state
