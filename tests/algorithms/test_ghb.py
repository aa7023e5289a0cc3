"""Generalized heavy-ball momentum: the papers' recursions."""

import numpy as np
import pytest

from tests.algorithms.identities import META, T, models, problem, same
from tests.algorithms.paths import gradient, recorded_rounds

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("variant", ["cyclic", "partial"])
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
