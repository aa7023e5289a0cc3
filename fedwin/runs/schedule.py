"""When what happens in a run, and who takes part."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from fedwin.data.federation import Federation
from fedwin.engine import sampling
from fedwin.engine.strategy import Strategy

# Blocks of cohorts that are kept: the one that is trained on and the next one.
LATEST_BLOCKS = 2


@dataclasses.dataclass(frozen=True)
class Schedule:
    """When what happens.

    Attributes:
      num_rounds: T.
      clients_per_round: |S|.
      eval_every: rounds between evaluations.
      final_evals: the last N rounds are all evaluated.
      checkpoint_every: rounds between checkpoints (0 = only the first and the last).
      rounds_per_dispatch: the most rounds that one dispatch may hold.
      stop_on_divergence: end at the first NaN or inf.
      keep_rounds: further rounds with a checkpoint.
      window_rounds: a bound of its own on the rounds of a dispatch, where windows are not on the device.
    """

    num_rounds: int
    clients_per_round: int
    eval_every: int
    final_evals: int
    checkpoint_every: int
    rounds_per_dispatch: int = 50
    stop_on_divergence: bool = True
    keep_rounds: tuple[int, ...] = ()
    window_rounds: int | None = None

    def evaluated(self, completed: int) -> bool:
        """Whether the model after `completed` rounds is evaluated."""
        return (
            completed % self.eval_every == 0
            or completed > self.num_rounds - self.final_evals
            or completed == self.num_rounds
        )

    def evaluations(self, completed: int) -> int:
        """Returns how many of the rounds after the first `completed` are evaluated."""
        begin = min(completed, self.num_rounds)
        dense = max(begin, self.num_rounds - max(self.final_evals, 1))
        return self.num_rounds - dense + dense // self.eval_every - begin // self.eval_every

    def checkpointed(self, completed: int) -> bool:
        """Whether a checkpoint is made after `completed` rounds."""
        if completed == self.num_rounds or completed in self.keep_rounds:
            return True
        return self.checkpoint_every > 0 and completed % self.checkpoint_every == 0

    def dispatch_end(self, completed: int, wish: int) -> int:
        """Returns where the dispatch that starts after `completed` rounds ends, at most `wish` rounds on.

        Dispatches end on multiples of rounds_per_dispatch too: what a dispatch is padded to then depends on the round
        alone, and a resumed run computes the same bits.
        """
        block = self.rounds_per_dispatch
        ends = [self.num_rounds, completed + min(wish, self.window_rounds or wish), (completed // block + 1) * block]
        if self.checkpoint_every:
            ends.append((completed // self.checkpoint_every + 1) * self.checkpoint_every)
        return min([*ends, *(round for round in self.keep_rounds if round > completed)])

    @property
    def longest(self) -> int:
        """The most rounds that a dispatch ever has."""
        return min(self.rounds_per_dispatch, self.window_rounds or self.rounds_per_dispatch)

    def with_dispatches_of(self, rounds: int | None) -> "Schedule":
        """Returns the schedule with dispatches of at most `rounds` rounds (None: as they are)."""
        return self if rounds is None else dataclasses.replace(self, rounds_per_dispatch=rounds)

    def with_windows_of(self, rounds: int | None) -> "Schedule":
        """Returns the schedule with dispatches cut to `rounds` rounds, whatever they are padded to (None: uncut)."""
        return dataclasses.replace(self, window_rounds=rounds)


class CohortSchedule:
    """Who takes part in a dispatch, padded as the strategy asks.

    Args:
      federation: whose clients.
      schedule: rounds and sizes.
      strategy: pads cohorts.
      seed: decides, with the round, who is drawn.
    """

    def __init__(self, federation: Federation, schedule: Schedule, strategy: Strategy, seed: int):
        self.federation, self.schedule, self.seed = federation, schedule, seed
        self.width = strategy.multiple(schedule.clients_per_round)
        # A block is asked for when its dispatch is foreseen and again when it begins.
        self._drawn = functools.lru_cache(LATEST_BLOCKS)(self._draw)

    def block(self, completed: int) -> tuple[np.ndarray, int]:
        """Returns (ids int32 [R_max, width], first round) of the dispatch block that holds round `completed`."""
        return self._drawn(completed // self.schedule.rounds_per_dispatch)

    def _draw(self, number: int) -> tuple[np.ndarray, int]:
        length = self.schedule.rounds_per_dispatch
        first = number * length
        count = min(length, self.schedule.num_rounds - first)
        drawn = sampling.cohorts(self.seed, first, count, self.federation.num_clients, self.schedule.clients_per_round)
        ids = np.full((length, self.width), -1, np.int32)
        ids[:count, : drawn.shape[1]] = drawn
        return ids, first

    def ids(self, completed: int, end: int) -> tuple[np.ndarray, int]:
        """Returns (ids [R_max, width], n_max) of rounds completed .. end - 1; unused rows are -1."""
        ids, first = self.block(completed)
        # The bucket is that of the whole block, so that it does not depend on where a dispatch was cut.
        return _cut(ids, first, completed, end), self.federation.bucket(ids)


def _cut(ids: np.ndarray, first: int, completed: int, end: int) -> np.ndarray:
    mine = np.full_like(ids, -1)
    mine[: end - completed] = ids[completed - first : end - first]
    return mine


class VmappedCohorts:
    """Who takes part in a dispatch of several lanes, each of which is a seed's.

    Args:
      members: of each lane's seed.
      buckets: client sizes that cohorts are padded to, ascending.
    """

    def __init__(self, members: Sequence[CohortSchedule], buckets: Sequence[int]):
        self.members, self.schedule, self.buckets = members, members[0].schedule, buckets

    def ids(self, completed: int, end: int) -> tuple[np.ndarray, int]:
        """Returns (ids [R_max, lanes, width], n_max) of rounds completed .. end - 1; unused rows are -1.

        All lanes count, also those that nobody reads any more: the program that a seed trains in is always the same.
        """
        blocks = [member.block(completed) for member in self.members]
        most = max(member.federation.most(ids) for member, (ids, _) in zip(self.members, blocks, strict=True))
        ids = np.stack([_cut(ids, first, completed, end) for ids, first in blocks], 1)
        return ids, next(bucket for bucket in self.buckets if bucket >= most)
