"""Personal models of Ditto and APFL against plain numpy, and what is evaluated as a client's model."""

import jax
import numpy as np
import pytest

from fedwin import core, testing
from fedwin.wrappers import WRAPPERS
from tests.algorithms import numpy_clients as plain

ROUNDS = len(plain.SCHEDULE)


def same(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def ditto_rounds(lam, first):
    """Server model and personal models after every round."""
    x, v, out = plain.START, dict.fromkeys(range(3)), []
    for cohort in plain.SCHEDULE:
        for i in cohort:
            start = v[i] if v[i] is not None else plain.START if first == "initial" else x
            v[i] = plain.descend(start, i, lambda y, batch: plain.gradient(y, batch) + lam * (y - x))
        x = plain.fedavg(x, cohort)
        out.append((x, dict(v)))
    return out


@pytest.mark.parametrize("lam,first", [(0.7, "received")])
def test_ditto_is_the_papers_rule(lam, first, double):
    p = plain.problem()
    algorithm = p.build(f"ditto:lam={lam},first={first}")
    for run, (x, v) in zip(testing.trajectory(p, algorithm, ROUNDS), ditto_rounds(lam, first), strict=True):
        same(plain.vector(run.params), x)
        for i in range(3):
            assert bool(run.table.seen[i]) == (v[i] is not None)
            personal = algorithm.client_model(core.Variables(run.params), jax.tree.map(lambda a: a[i], run.table))
            same(plain.vector(personal.params), x if v[i] is None else v[i])


def apfl_rounds(alpha, adaptive, first):
    """Server model, v_i and alpha_i after every round."""
    x, v, weight, out = plain.START, dict.fromkeys(range(3)), [alpha] * 3, []
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
        out.append((x, dict(v), list(weight)))
    return out


@pytest.mark.parametrize(
    "adaptive,first",
    [("round", "initial"), ("step", "received")],
)
def test_apfl_is_the_papers_rule(adaptive, first, double):
    p = plain.problem()
    algorithm = p.build(f"apfl:alpha=0.3,adaptive={adaptive},first={first}")
    runs = testing.trajectory(p, algorithm, ROUNDS)
    for run, (x, v, weight) in zip(runs, apfl_rounds(0.3, adaptive, first), strict=True):
        same(plain.vector(run.params), x)
        same(run.table.alpha, weight)
        for i in range(3):
            mixed = algorithm.client_model(core.Variables(run.params), jax.tree.map(lambda a: a[i], run.table))
            same(plain.vector(mixed.params), x if v[i] is None else weight[i] * v[i] + (1 - weight[i]) * x)
    assert (adaptive == "none") == (weight == [0.3] * 3)


def test_a_bound_on_the_step_does_not_bound_the_personal_model():
    p = testing.quadratic([1.0], [9.0], [0.0], steps=5, lr=0.1, schedule=[[0]])
    run = testing.trajectory(p, p.build("ditto:lam=0", WRAPPERS.build("clip:norm=0.01", p.setting)), 1)[-1]
    np.testing.assert_allclose(run.params["x"], 0.01, rtol=1e-5)
    np.testing.assert_allclose(run.table.params["x"][0], 9 * (1 - 0.9**5), rtol=1e-5)
