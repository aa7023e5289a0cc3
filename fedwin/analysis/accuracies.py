"""Summaries of accuracy curves: rounds to a target, speedup, mean of the last rounds, variation."""

import numpy as np

from fedwin.analysis.models import array
from fedwin.callbacks.scores import reaches
from fedwin.errors import UserError


def rounds_to_target(accuracy, target: float, rounds=None) -> int | None:
    """Returns the first round whose accuracy reaches a target, as float32 and without smoothing.

    Args:
      accuracy: one number per evaluation [n].
      target: usually the baseline's mean_last(accuracy, 10).
      rounds: the round of each evaluation, increasing, counted from 1 [n]; by default 1, 2, ...

    Returns:
      The round, or None if no accuracy reaches the target.

    Raises:
      UserError: when the numbers of rounds and accuracies differ, rounds do not increase, or the target is not finite.

    Example:
      >>> rounds_to_target([0.3, 0.6, 0.5, 0.8], 0.6, rounds=[10, 20, 30, 40])
      20
    """
    accuracy = array("rounds_to_target: accuracy", accuracy, 1)
    rounds = np.arange(1, len(accuracy) + 1) if rounds is None else array("rounds_to_target: rounds", rounds, 1)
    if len(rounds) != len(accuracy) or (np.diff(rounds) <= 0).any():
        raise UserError(
            f"rounds_to_target: {len(rounds)} rounds, {len(accuracy)} accuracies; pass one increasing round for each."
        )
    if not np.isfinite(target):
        raise UserError(f"rounds_to_target: target={target} is not a finite accuracy.")
    reached = np.flatnonzero(reaches(accuracy, target))
    return int(rounds[reached[0]]) if len(reached) else None


def speedup(baseline: int | None, rounds: int | None) -> float | None:
    """Computes how many times fewer rounds a method needs than the baseline.

        baseline / rounds

    Args:
      baseline: result of rounds_to_target for the baseline.
      rounds: result of rounds_to_target for the method.

    Returns:
      The ratio, or None if one of them did not reach the target, or the untrained model (round 0) did.
    """
    return baseline / rounds if baseline and rounds else None


def mean_last(accuracy, last: int) -> float:
    """Computes the mean accuracy of the last evaluations; IMA reports the last 10 rounds, WSM the last 100.

    Args:
      accuracy: one number per evaluation [n], or one per domain [n, domains], averaged over domains first.
      last: number of evaluations, in 1..n.

    Raises:
      UserError: when `last` is not an integer in 1..n.

    Example:
      >>> mean_last([0.1, 0.5, 0.7], 2)
      0.6
    """
    accuracy = array("mean_last: accuracy", accuracy, 1, 2)
    if isinstance(last, bool) or not isinstance(last, (int, np.integer)) or not 1 <= last <= len(accuracy):
        raise UserError(f"mean_last: last={last} must be an integer in 1..{len(accuracy)}, the number of evaluations.")
    return float(accuracy.reshape(len(accuracy), -1).mean(1)[-last:].mean())


def round_to_round_std(accuracy, rounds=None, step: int = 1) -> float:
    """Computes the variation of an accuracy curve from round to round.

        s^2 = 1/2 mean_t (a_{t + step} - a_t)^2

    s estimates the standard deviation of accuracies that scatter independently around a level; unlike the plain
    standard deviation it hardly depends on a slow rise of the level.

    Args:
      accuracy: one number per evaluation [n].
      rounds: the round of each evaluation, by default 1, 2, ... [n].
      step: distance in rounds of the evaluations that are compared.

    Returns:
      s.

    Raises:
      UserError: when the numbers of rounds and accuracies differ, or no two evaluations are `step` rounds apart.

    Source: von Neumann et al., The Mean Square Successive Difference, 1941, https://doi.org/10.1214/aoms/1177731746.

    Example:
      >>> round(round_to_round_std([0.5, 0.7, 0.5, 0.7]), 6)
      0.141421
    """
    accuracy = array("round_to_round_std: accuracy", accuracy, 1)
    rounds = np.arange(1, len(accuracy) + 1) if rounds is None else array("round_to_round_std: rounds", rounds, 1)
    if len(rounds) != len(accuracy):
        raise UserError(f"round_to_round_std: {len(rounds)} rounds, {len(accuracy)} accuracies; give each its own.")
    by_round = dict(zip(rounds.tolist(), accuracy.tolist()))
    differences = [by_round[t + step] - a for t, a in by_round.items() if t + step in by_round]
    if step < 1 or not differences:
        raise UserError(f"round_to_round_std: no two evaluations are {step} round(s) apart; evaluate more often.")
    return float(np.sqrt(np.mean(np.square(differences)) / 2))
