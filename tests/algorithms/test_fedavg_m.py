"""FedAvg-M and SCAFFOLD-M against plain numpy, and as FedCM and SCAFFOLD where they coincide."""

import numpy as np

from fedwin import testing
from tests.algorithms import numpy_clients as plain

ROUNDS = len(plain.SCHEDULE)


def steps(i):
    return len(list(plain.batches(i)))


def expected(beta, corrected, server_lr=1.0):
    """Models, momenta, controls of the server and of the clients after each round, by the paper's rule."""
    x, m, c, controls, out = plain.START, np.zeros(2), np.zeros(2), np.zeros((3, 2)), []
    for cohort in plain.SCHEDULE:
        ys, new = {}, controls.copy()
        for i in cohort:
            y, gradients = x, []
            for batch in plain.batches(i):
                g = plain.gradient(y, batch)
                gradients.append(g)
                y = y - plain.LR * (beta * (g + (c - controls[i] if corrected else 0)) + (1 - beta) * m)
            ys[i], new[i] = y, np.mean(gradients, axis=0)
        p = np.array([plain.SIZES[i] for i in cohort]) / sum(plain.SIZES[i] for i in cohort)
        delta = sum(w * (ys[i] - x) for w, i in zip(p, cohort))
        m = -delta / (plain.LR * sum(w * steps(i) for w, i in zip(p, cohort)))
        c = c + sum(new[i] - controls[i] for i in cohort) / 3
        x, controls = x + server_lr * delta, new
        out.append((x, m, c, controls))
    return [np.stack(part) for part in zip(*out)]


def test_fedavg_m_is_the_papers_rule(double):
    p = plain.problem()
    runs = testing.trajectory(p, p.build("fedavg_m:beta=0.3,server_lr=0.7"), ROUNDS)
    x, m, _, _ = expected(0.3, False, 0.7)
    np.testing.assert_allclose([plain.vector(run.params) for run in runs], x, rtol=1e-9)
    np.testing.assert_allclose([plain.vector(run.state) for run in runs], m, rtol=1e-9)


def test_scaffold_m_is_the_papers_rule(double):
    p = plain.problem()
    runs = testing.trajectory(p, p.build("scaffold_m:beta=0.3"), ROUNDS)
    x, m, c, controls = expected(0.3, True)
    np.testing.assert_allclose([plain.vector(run.params) for run in runs], x, rtol=1e-9)
    np.testing.assert_allclose([plain.vector(run.state.momentum) for run in runs], m, rtol=1e-9)
    np.testing.assert_allclose([plain.vector(run.state.control) for run in runs], c, rtol=1e-9)
    rows = [[plain.row(run.table, i) for i in range(3)] for run in runs]
    np.testing.assert_allclose(rows, controls, rtol=1e-9, atol=1e-12)
