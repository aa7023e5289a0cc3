"""Which checkpoint a seed resumes from: the newest that is whole, its own, and covered by evaluations on the disk."""

from typing import Any

import numpy as np

from fedwin.errors import UserError
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.logbook import LinesHash
from fedwin.runs.schedule import Schedule


def missing(schedule: Schedule, lines: list[dict[str, Any]], start: int, round: int) -> list[int]:
    """Returns the rounds up to `round` whose evaluations the schedule demands and `lines` lack.

    Args:
      schedule: when evaluations happen.
      lines: what metrics.jsonl has of the seed.
      start: the round that the run began at (0, or a fork's).
      round: the last that counts.
    """
    there = {line["round"] for line in lines}
    wanted = (r for r in range(start, round + 1) if r == start or schedule.evaluated(r))
    return [r for r in wanted if r not in there]


def newest(
    checkpoints: Checkpoints, schedule: Schedule, lines: list[dict[str, Any]], seed: int, start: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Returns (leaves, extra) of the checkpoint to resume from; None for a run without any.

    Args:
      checkpoints: the seed's.
      schedule: when evaluations happen.
      lines: what metrics.jsonl has of the seed.
      seed: whose run.
      start: the round that the run began at.

    Raises:
      UserError: there are checkpoints and none can be used.
    """

    def check(round: int, about: dict[str, Any]) -> None:
        where = checkpoints.shown / str(round)
        if about.get("seed", seed) != seed:
            raise UserError(f"checkpoint {where} belongs to seed {about['seed']}; delete it.")
        if about.get("round", round) != round:
            raise UserError(f"checkpoint {where} is of round {about['round']}; delete it.")
        lacking = missing(schedule, lines, start, round)
        if lacking:
            raise UserError(
                f"metrics.jsonl lacks {len(lacking)} of seed {seed}'s evaluations up to round {round} (the first of "
                f"round {lacking[0]}); restore the file, or choose another --out_dir."
            )
        counted = about.get("evaluations")
        if counted is not None and counted != LinesHash(line for line in lines if line["round"] <= round).value:
            raise UserError(
                f"metrics.jsonl has been altered: seed {seed}'s evaluations up to round {round} are not those of the "
                f"run; restore the file, or choose another --out_dir."
            )

    return checkpoints.latest(check)
