"""FedSWA and FedMoSWA against plain numpy, in the paper's form and in the released code's."""

import numpy as np
import optax
import pytest

from fedwin import testing
from tests.algorithms import numpy_clients as plain

ROUNDS = len(plain.SCHEDULE)


def trained(x, i, rho, peak, control=0.0):
    """Client i's model after its local steps, and the rates of these steps."""
    batches = list(plain.batches(i))
    J, y, rates = len(batches), x, []
    for j, batch in enumerate(batches):
        # From peak lr to rho peak lr, which step J would have.
        rates.append(plain.LR * peak * (1 - j / J) + plain.LR * peak * rho * j / J)
        y = y - rates[-1] * (plain.gradient(y, batch) + control)
    return y, rates


def shares(cohort, weighting):
    p = plain.SIZES[list(cohort)] if weighting == "samples" else np.ones(len(cohort))
    return p / p.sum()


def fedswa(rho, peak, alpha, weighting):
    x, out = plain.START, []
    for cohort in plain.SCHEDULE:
        mean = shares(cohort, weighting) @ np.array([trained(x, i, rho, peak)[0] for i in cohort])
        x = x + alpha * (mean - x)
        out.append(x)
    return out


def fedmoswa(rho, gamma, alpha, weighting, code):
    """Server models, m and the clients' c_i after the last round."""
    x, m, c, out = plain.START, np.zeros(2), np.zeros((3, 2)), []
    for t, cohort in enumerate(plain.SCHEDULE):
        p, ys, sent = shares(cohort, weighting), [], []
        for i in cohort:
            y, rates = trained(x, i, rho, 1.0, m - c[i])
            divisor = len(rates) * plain.LR * (1 + rho) / 2 if code else sum(rates)
            c[i] = c[i] - m + (x - y) / divisor
            ys.append(y)
            sent.append(c[i] - m)
        x = x + alpha * (p @ np.array(ys) - x)
        m = m + (1.0 if code and t == 0 else gamma) * (p @ np.array(sent))
        out.append(x)
    return out, m, c


@pytest.mark.parametrize(
    "choice,numbers",
    [("fedswa:weighting=uniform", (0.1, 1, 1.5, "uniform")), ("fedswa:form=code,rho=0.2", (0.2, 2, 1, "samples"))],
)
def test_fedswa_is_the_rule_of_its_form(choice, numbers, double):
    p = plain.problem()
    runs = testing.trajectory(p, p.build(choice), ROUNDS)
    np.testing.assert_allclose([plain.vector(run.params) for run in runs], fedswa(*numbers), rtol=1e-9)


@pytest.mark.parametrize(
    "choice,numbers",
    [
        ("fedmoswa:weighting=uniform", (0.1, 0.2, 1.5, "uniform", False)),
        ("fedmoswa:form=code", (0, 0.4, 1, "samples", True)),
    ],
)
def test_fedmoswa_is_the_rule_of_its_form(choice, numbers, double):
    p = plain.problem()
    runs = testing.trajectory(p, p.build(choice), ROUNDS)
    models, m, c = fedmoswa(*numbers)
    np.testing.assert_allclose([plain.vector(run.params) for run in runs], models, rtol=1e-9)
    np.testing.assert_allclose(plain.vector(runs[-1].state), m, rtol=1e-9)
    np.testing.assert_allclose([plain.row(runs[-1].table, i) for i in range(3)], c, rtol=1e-9)


def test_with_momentum_the_rate_shortens_the_whole_step(double):
    """PyTorch's SGD: v <- rho v + (g + lambda y), y <- y - eta_j v."""
    p = plain.problem(optimizer=optax.sgd(1.0, 0.9), weight_decay=0.1)
    y, v = plain.START, np.zeros(2)
    batches = list(plain.batches(2))
    for j, batch in enumerate(batches):
        v = 0.9 * v + plain.gradient(y, batch) + 0.1 * y
        y = y - plain.LR * (1 - 0.9 * j / len(batches)) * v
    p = p._replace(schedule=((2,),))
    (run,) = testing.trajectory(p, p.build("fedswa:server_lr=1"), 1)
    np.testing.assert_allclose(plain.vector(run.params), y, rtol=1e-9)
