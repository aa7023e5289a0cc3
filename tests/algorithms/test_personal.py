"""Personal models of Ditto, APFL and pFedMe against plain numpy, and what is evaluated as a client's model."""

import jax
import numpy as np
import pytest

from fedwin import core, testing
from tests.algorithms import numpy_clients as plain
from tests.algorithms.test_numpy_rules import slow
from tests.problems import one_round


def read(x, v):
    """Clients without a model of their own have the server's."""
    return {i: x if v[i] is None else v[i] for i in v}


def ditto(lam, first):
    x, v = plain.START, dict.fromkeys(range(3))
    for cohort in plain.SCHEDULE:
        for i in cohort:
            start = v[i] if v[i] is not None else plain.START if first == "initial" else x
            v[i] = plain.descend(start, i, lambda y, batch: plain.gradient(y, batch) + lam * (y - x))
        x = plain.fedavg(x, cohort)
        yield {"params": x, "table.seen": [v[i] is not None for i in v], "personal": read(x, v)}


def apfl(alpha, adaptive, first):
    x, v, weight = plain.START, dict.fromkeys(range(3)), [alpha] * 3
    for cohort in plain.SCHEDULE:
        for i in cohort:
            own = v[i] if v[i] is not None else plain.START if first == "initial" else x
            y, a = x, weight[i]
            for j, batch in enumerate(plain.batches(i)):
                g = plain.gradient(a * own + (1 - a) * y, batch)
                slope = (own - y) @ g
                own, y = own - plain.LR * a * g, y - plain.LR * plain.gradient(y, batch)
                if adaptive == "step" or (adaptive == "round" and j == 0):
                    a = min(max(a - plain.LR * slope, 0), 1)
            v[i], weight[i] = own, a
        x = plain.fedavg(x, cohort)
        mixed = {i: None if v[i] is None else weight[i] * v[i] + (1 - weight[i]) * x for i in v}
        yield {"params": x, "table.alpha": np.array(weight), "personal": read(x, mixed)}
    assert (adaptive == "none") == (weight == [alpha] * 3)


def pfedme(lam, eta, steps, server_lr):
    x, v = plain.START, dict.fromkeys(range(3))
    for cohort in plain.SCHEDULE:
        ends = []
        for i in cohort:
            w = theta = x
            for batch in plain.batches(i):
                for _ in range(steps):
                    theta = theta - plain.LR * (plain.gradient(theta, batch) + lam * (theta - w))
                w = w - eta * lam * (w - theta)
            v[i] = theta
            ends.append(w)
        x = x + server_lr * (plain.shares(cohort) @ np.array(ends) - x)
        yield {"params": x, "personal": read(x, v)}


RULES = [
    ("ditto:lam=0.7,first=received", ditto, (0.7, "received")),
    slow("ditto:lam=0,first=initial", ditto, (0, "initial")),
    ("apfl:alpha=0.9,adaptive=round,first=initial", apfl, (0.9, "round", "initial")),  # reaches 1
    ("apfl:alpha=0.1,adaptive=step,first=received", apfl, (0.1, "step", "received")),  # reaches 0
    slow("apfl:alpha=0.3,adaptive=none,first=initial", apfl, (0.3, "none", "initial")),
    ("pfedme:lam=1.5,eta=0.3,steps=3,server_lr=0.8", pfedme, (1.5, 0.3, 3, 0.8)),
]


@pytest.mark.parametrize("choice, rule, numbers", RULES)
def test_every_round_is_the_papers_rule(choice, rule, numbers, double):
    plain.compare(choice, rule(*numbers), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["ditto:lam=0.5", "apfl:adaptive=round", "pfedme:lam=1"])
def test_a_personal_model_continues_from_its_own_statistics(choice):
    p = testing.classification(schedule=((0, 1), (0, 2)), shuffle=False)
    algorithm = p.build(choice)
    first, second = testing.trajectory(p, algorithm, 2)
    own = lambda run, i: jax.tree.map(lambda leaf: leaf[i], getattr(run.table, "own", run.table))
    # Exponential averages over other numbers of steps.
    kept, moved = own(first, 1), own(second, 0)
    np.testing.assert_array_equal(own(second, 1).stats["mean"], kept.stats["mean"])
    assert np.abs(moved.stats["mean"] - own(first, 0).stats["mean"]).max() > 1e-3
    server = core.Variables(second.params, second.stats)
    read = lambda i: algorithm.client_model(server, jax.tree.map(lambda leaf: leaf[i], second.table))
    np.testing.assert_array_equal(read(0).stats["mean"], moved.stats["mean"])
    np.testing.assert_array_equal(read(3).stats["mean"], second.stats["mean"])
    np.testing.assert_array_equal(read(3).params["last"]["bias"], second.params["last"]["bias"])


def test_a_bound_on_the_step_does_not_bound_the_personal_model():
    p = testing.quadratic([1.0], [9.0], [0.0], steps=5, lr=0.1, schedule=[[0]])
    run = one_round(p, "ditto:lam=0", "clip:norm=0.01")
    np.testing.assert_allclose(run.params["x"], 0.01, rtol=1e-5)
    np.testing.assert_allclose(run.table.params["x"][0], 9 * (1 - 0.9**5), rtol=1e-5)
