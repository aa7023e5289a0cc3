"""Generalized heavy-ball momentum: the papers' recursions."""

import jax
import numpy as np
import pytest

from fedwin import testing
from tests.algorithms.identities import META, T, models, problem, same
from tests.algorithms.paths import gradient, recorded_rounds

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("variant", ["cyclic", "partial", "full"])
def test_fedhbm_is_local_ghb_plus_a_local_correction(variant):
    participation, previous = problem(variant).setting.participation, {}
    for _, _, paths in recorded_rounds("fedhbm", variant):
        for i, path in paths.items():
            updates = path[:-1] - path[1:]
            for j in range(META["J"][i]):
                momentum = np.zeros(2)
                if i in previous:
                    received, before = previous[i]
                    momentum = (path[0] - received) + before.sum(0) - updates[:j].sum(0)
                step = participation / META["J"][i] * momentum - META["lr"] * gradient(i, path[j], j)
                same(path[j + 1], path[j] + step)
            previous[i] = path[0], updates
    assert len(previous) == len(META["J"])


def test_ghbs_momentum_obeys_the_papers_recursion():
    tau, beta, p = 3, 0.9, problem("equal")
    steps, lr = META["epochs"], META["lr"]
    trace = np.concatenate([[META["theta0"]], models(f"ghb:tau={tau},beta={beta}", "equal")])
    m = lambda t: (trace[t - tau] - trace[t]) / (lr * tau * steps) if t >= tau else np.zeros(2)
    mean_gradients = []
    for t in range(1, T + 1):
        ids, total = p.schedule[(t - 1) % len(p.schedule)], np.zeros(2)
        for i in ids:
            x = trace[t - 1].copy()
            for _ in range(steps):
                g = gradient(i, x, 0)
                total += g / steps / len(ids)
                x = x - lr * (g + beta * m(t - 1))
        mean_gradients.append(total)
    for t in range(tau, T + 1):
        same(m(t), sum(beta * m(v - 1) + mean_gradients[v - 1] for v in range(t - tau + 1, t + 1)) / tau)


@pytest.mark.parametrize("first", ["shared", "random"])
def test_a_given_anchor_counts_by_the_participation_at_first_and_by_its_age_later(first):
    """Client 1 of three takes part in rounds 1 and 3 (0-based): factors 1/3 and 1/2 of x - r and x - a."""
    p = testing.quadratic(
        [1.0] * 3, [2.0, -1.0, 4.0], [0.5], steps=2, lr=0.1, schedule=[[0], [1], [2], [1]],
        init_fn=lambda key: {"x": jax.random.normal(key, (1,), float)},
    )  # fmt: skip
    algorithm = p.build(f"local_ghb:beta=0.6,first={first},scale=tau_i")
    table = np.asarray(p.start(algorithm).table.anchor["x"])
    x = [0.5, *(float(run.params["x"][0]) for run in testing.trajectory(p, algorithm, 4))]

    def trained(start, momentum):
        y = start
        for _ in range(2):
            y = y - 0.1 * (y + 1.0) + 0.6 / 2 * momentum
        return y

    same(x[2], trained(x[1], (x[1] - table[1, 0]) / 3))
    same(x[4], trained(x[3], (x[3] - x[1]) / 2))
    if first == "random":  # in round 0 already
        assert abs(table[0, 0] - 0.5) > 1e-3
