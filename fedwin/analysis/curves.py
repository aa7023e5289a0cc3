"""Numbers that papers read off an accuracy curve."""

import numpy as np

from fedwin.analysis.models import array
from fedwin.errors import UserError


def rounds_to_target(accuracy, target: float, rounds=None) -> int | None:
    """Returns the first round, counted from 1, whose accuracy is >= target, without smoothing; None if there is none.

    >>> rounds_to_target([0.3, 0.6, 0.5, 0.8], 0.6, rounds=[10, 20, 30, 40])
    20

    Args:
      accuracy: one number per evaluation [n].
      target: by custom the baseline's mean_last(accuracy, 10).
      rounds: the round of each evaluation, by default 1, 2, ... [n].

    Raises:
      UserError: when there are more or fewer rounds than accuracies, rounds do not grow, or the target is not a number.
    """
    accuracy = array("rounds_to_target: accuracy", accuracy, 1)
    rounds = np.arange(1, len(accuracy) + 1) if rounds is None else array("rounds_to_target: rounds", rounds, 1)
    if len(rounds) != len(accuracy) or (np.diff(rounds) <= 0).any():
        raise UserError(
            f"rounds_to_target: {len(rounds)} rounds, {len(accuracy)} accuracies; give each its own, growing."
        )
    if not np.isfinite(target):
        raise UserError(f"rounds_to_target: target={target} is not a finite accuracy.")
    reached = np.flatnonzero(accuracy >= target)
    return int(rounds[reached[0]]) if len(reached) else None


def speedup(baseline: int | None, rounds: int | None) -> float | None:
    """Returns how many times fewer rounds a method needs: baseline / rounds; None where one never got there.

    >>> speedup(394, 197)
    2.0

    Args:
      baseline: result of rounds_to_target for the baseline.
      rounds: result of rounds_to_target for the method.

    Raises:
      UserError: when a number of rounds is below 1.
    """
    if baseline is None or rounds is None:
        return None
    if baseline <= 0 or rounds <= 0:
        raise UserError(f"speedup: {baseline} and {rounds} rounds; rounds are counted from 1.")
    return baseline / rounds


def mean_last(accuracy, last: int) -> float:
    """Returns the mean over the last evaluations; IMA reports the last 10 rounds, WSM the last 100.

    Args:
      accuracy: one number per evaluation [n], or one per domain [n, domains], averaged over domains first.
      last: how many evaluations.

    Raises:
      UserError: when `last` is not an integer in 1..n.
    """
    accuracy = array("mean_last: accuracy", accuracy, 1, 2)
    if isinstance(last, bool) or not isinstance(last, int) or not 1 <= last <= len(accuracy):
        raise UserError(f"mean_last: last={last} must be an integer in 1..{len(accuracy)}, the number of evaluations.")
    return float(accuracy.reshape(len(accuracy), -1).mean(1)[-last:].mean())


def round_to_round_std(accuracy, rounds=None, step: int = 1) -> float:
    """Returns how much a curve jumps from one round to the next.

        s^2 = 1/2 mean_t (a_{t + step} - a_t)^2

    It is the standard deviation of accuracies that scatter independently around a level; a level that rises slowly
    hardly counts, which it would in the standard deviation itself.

    >>> round_to_round_std([0.5, 0.7, 0.5, 0.7])
    0.14142135623730948

    Args:
      accuracy: one number per evaluation [n].
      rounds: the round of each evaluation, by default 1, 2, ... [n].
      step: how many rounds lie between two evaluations that are compared.

    Raises:
      UserError: when there are more or fewer rounds than accuracies, or no two evaluations are `step` rounds apart.

    von Neumann et al., The Mean Square Successive Difference, 1941, https://doi.org/10.1214/aoms/1177731746.
    """
    accuracy = array("round_to_round_std: accuracy", accuracy, 1)
    rounds = np.arange(1, len(accuracy) + 1) if rounds is None else array("round_to_round_std: rounds", rounds, 1)
    if len(rounds) != len(accuracy):
        raise UserError(f"round_to_round_std: {len(rounds)} rounds, {len(accuracy)} accuracies; give each its own.")
    at = dict(zip(rounds.tolist(), accuracy.tolist()))
    jumps = [at[t + step] - a for t, a in at.items() if t + step in at]
    if step < 1 or not jumps:
        raise UserError(f"round_to_round_std: no two evaluations are {step} round(s) apart; evaluate more often.")
    return float(np.sqrt(np.mean(np.square(jumps)) / 2))


def traffic(per_client, rounds: int, clients_per_round: int) -> int:
    """Returns rounds x clients x (down + up), in the unit of `per_client`.

    >>> traffic((2, 1), rounds=400, clients_per_round=10)
    12000

    Args:
      per_client: (down, up) of one client and round, such as `engine.communication` counts in bytes; what a method
        sends besides models, FedFA's anchors for one, is counted there.
      rounds: how many.
      clients_per_round: how many take part in each.

    Raises:
      UserError: when there are fewer than 0 rounds or 1 client.
    """
    if rounds < 0 or clients_per_round < 1:
        raise UserError(f"traffic: {rounds} rounds of {clients_per_round} clients; 0 rounds or more, 1 client or more.")
    return rounds * clients_per_round * sum(per_client)
