"""Runs a few rounds of a registered method on a small problem and returns its losses."""

import functools
from collections.abc import Iterable

from fedwin import aggregation, engine
from fedwin import observers as observing
from fedwin import wrappers as wrapping
from fedwin.registry import Choice
from fedwin.testing.families import quadratic
from fedwin.testing.problems import Problem, mean_loss, trajectory


@functools.cache
def two_quadratics() -> Problem:
    """Returns two clients with different minima, the default problem of `run_rounds`.

        f_1(x) = x^2 / 2,   f_2(x) = 3 (x - 4)^2 / 2,   f = (f_1 + f_2) / 2,   min f = f(3) = 3

    Both clients take part in every round, with five steps of exact gradient descent at learning rate 0.1 from x_0 = 1.
    """
    return quadratic([1, 3], [0, 4], [1.0], steps=5, lr=0.1, schedule=((0, 1),))


def run_rounds(
    algorithm: str | Choice = "fedavg",
    rounds: int = 3,
    *,
    wrappers: Iterable[str | Choice] = (),
    observers: Iterable[str | Choice] = (),
    problem: Problem | None = None,
    aggregate: str | Choice = "mean",
    attack: str | Choice = "none",
) -> dict[str, list[float]]:
    """Runs an algorithm by name and returns the mean loss over all clients' examples after every round.

    Args:
      algorithm: a choice such as 'fedprox:mu=0.1'.
      wrappers: choices such as 'ima:window=2,start=1', applied in order.
      observers: choices such as 'wima:window=2'.
      problem: the problem to run on; None is `two_quadratics()`.
      aggregate: how the server combines the clients' steps, a choice such as 'median'.
      attack: attack by some of the clients, drawn with seed 0, a choice such as 'sign_flip:clients=1'.

    Returns:
      'model' and the name of every read-out -> its loss after each round, rounded to three digits [rounds].

    Raises:
      UserError: when a choice is unknown or does not fit.

    Example:
      >>> run_rounds("fedavg", rounds=3, observers=["wima:window=2"])
      {'model': [3.916, 3.315, 3.169], 'wima2': [3.916, 3.576, 3.236]}
    """
    p = two_quadratics() if problem is None else problem
    p = p._replace(setting=p.setting._replace(num_rounds=rounds))
    method = p.build(algorithm, *wrapping.build_all(wrappers, p.setting))
    attacking, clients = aggregation.ATTACKS.build(attack, p.setting), p.setting.num_clients
    if attacking.count:
        mask = aggregation.attackers(0, attacking.count, clients)
        p = p._replace(store=p.store._replace(info=aggregation.with_attackers(p.store.info, mask)))
    method = aggregation.attacked(method, attacking)
    method = aggregation.aggregated(method, aggregation.AGGREGATORS.build(aggregate, p.setting))
    watched = observing.build_all(observers, p.setting)
    losses: dict[str, list[float]] = {}
    for run in trajectory(p, method, rounds, watched):
        for name, variables in engine.read_out(method, watched, run).items():
            losses.setdefault(name, []).append(round(mean_loss(p, variables), 3))
    return losses
