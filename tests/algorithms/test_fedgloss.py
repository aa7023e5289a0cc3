"""FedGloSS against plain numpy, and as FedDyn where nothing is perturbed."""

import numpy as np
import pytest

from fedwin import testing
from tests.algorithms import numpy_clients as plain

ROUNDS = len(plain.SCHEDULE)


def expected(rho, local_rho, beta, ramp, dual, server_lr):
    """Models, s and all q_i after each round."""
    x, pseudo, sigma, sigmas, out = plain.START, None, np.zeros(2), np.zeros((3, 2)), []
    for t, cohort in enumerate(plain.SCHEDULE):
        grown = min(t / ramp, 1) if ramp else 1
        here, there = (0.001 + (r - 0.001) * grown if ramp else r for r in (rho, local_rho))
        z = x if pseudo is None else x + here * pseudo / np.linalg.norm(pseudo)
        moved = {}
        for i in cohort:

            def direction(y, batch):
                g = plain.gradient(y, batch)
                g = plain.gradient(y + there * g / np.linalg.norm(g), batch) if there else g
                return g - sigmas[i] + (y - z) / beta

            moved[i] = plain.descend(z, i, direction) - z
        for i in cohort:
            sigmas = sigmas.copy()
            sigmas[i] -= moved[i] / beta
        sigma = sigma - sum(moved.values()) / (beta * 3 * (len(cohort) if dual == "cohort" else 1))
        pseudo = -sum(plain.SIZES[i] * moved[i] for i in cohort) / sum(plain.SIZES[i] for i in cohort)
        x = x - server_lr * pseudo - beta * sigma
        out.append((x, -beta * sigma, -beta * sigmas))
    return [np.stack(part) for part in zip(*out)]


@pytest.mark.parametrize(
    "rho,local_rho,ramp,dual,server_lr",
    [(0.3, 0.2, 2, "clients", 0.7), pytest.param(0.3, 0, 0, "cohort", 1.0, marks=pytest.mark.slow)],
)
def test_fedgloss_is_the_papers_rule(rho, local_rho, ramp, dual, server_lr, double):
    p = plain.problem()
    choice = f"fedgloss:rho={rho},local_rho={local_rho},beta=4,ramp={ramp},dual={dual},server_lr={server_lr}"
    runs = testing.trajectory(p, p.build(choice), ROUNDS)
    x, s, q = expected(rho, local_rho, 4, ramp, dual, server_lr)
    np.testing.assert_allclose([plain.vector(run.params) for run in runs], x, rtol=1e-9)
    np.testing.assert_allclose([plain.vector(run.state.s) for run in runs], s, rtol=1e-9, atol=1e-12)
    rows = [[plain.row(run.table, i) for i in range(3)] for run in runs]
    np.testing.assert_allclose(rows, q, rtol=1e-9, atol=1e-12)
