"""Fairness between clients: q-FFL and agnostic FedAvg against plain numpy, their limits, and what is refused."""

import numpy as np
import pytest

from fedwin import testing
from fedwin.algorithms.agnostic import domain_weights
from fedwin.errors import UserError
from tests.algorithms import numpy_clients as plain

ROUNDS = len(plain.SCHEDULE)


def same(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def weights(weighting):
    return plain.SIZES if weighting == "samples" else np.ones(3)


def qffl_rounds(q, weighting, lipschitz):
    """The paper's Delta_i and h_i, each times p_i."""
    x, out, L, p = plain.START, [], lipschitz or 1 / plain.LR, weights(weighting)
    for cohort in plain.SCHEDULE:
        F = {i: plain.loss(x, i) + 1e-10 for i in cohort}
        moved = {i: L * (x - plain.descend(x, i)) for i in cohort}
        delta = sum(p[i] * F[i] ** q * moved[i] for i in cohort)
        h = sum(p[i] * (q * F[i] ** (q - 1) * moved[i] @ moved[i] + L * F[i] ** q) for i in cohort)
        x = x - delta / h
        out.append(x)
    return out


@pytest.mark.parametrize(
    "q,weighting,lipschitz",
    [(3, "samples", 2.5), (0.5, "uniform", None), pytest.param(1, "samples", None, marks=pytest.mark.slow)],
)
def test_qffl_is_the_papers_rule(q, weighting, lipschitz, double):
    p = plain.problem()
    given = f",lipschitz={lipschitz}" if lipschitz else ""
    runs = testing.trajectory(p, p.build(f"qffl:q={q},weighting={weighting}{given}"), ROUNDS)
    same([plain.vector(run.params) for run in runs], qffl_rounds(q, weighting, lipschitz))


def test_clients_without_a_loss_leave_the_model_as_it_is():
    p = testing.quadratic([1.0, 2.0], [3.0, 3.0], [3.0], steps=1, lr=0.1, schedule=[[0, 1]])
    assert testing.trajectory(p, p.build("qffl:q=5"), 1)[-1].params["x"] == 3


def agnostic_rounds(lr, weighting):
    """Server model and weights of the clients, each its own domain."""
    x, lam, out, p = plain.START, np.full(3, 1 / 3), [], weights(weighting)
    for cohort in plain.SCHEDULE:
        share = {i: p[i] * lam[i] for i in cohort}
        losses = np.array([plain.loss(x, i) if i in cohort else 0.0 for i in range(3)])
        x = sum(share[i] * plain.descend(x, i) for i in cohort) / sum(share.values())
        lam = lam * np.exp(lr * losses)
        lam /= lam.sum()
        out.append((x, lam))
    return out


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_agnostic_fedavg_with_a_domain_per_client(weighting, double):
    p = plain.problem()
    runs = testing.trajectory(p, p.build(f"agnostic:lr=0.8,weighting={weighting}"), ROUNDS)
    for run, (x, lam) in zip(runs, agnostic_rounds(0.8, weighting), strict=True):
        same(plain.vector(run.params), x)
        same(run.state.weights, lam)


def test_a_domain_without_clients_keeps_its_count():
    # FedJAX divides by zero here: domain 1 takes part in round 0 only.
    p = testing.quadratic(
        [1.0] * 3, [0.0, 1.0, 2.0], [1.0], steps=1, lr=0.1, schedule=[[0, 2], [0, 1], [1, 0]], sizes=[2, 3, 5],
        info={"domain": np.array([0, 0, 1], np.int32)},
    )  # fmt: skip
    run = testing.trajectory(p, p.build("agnostic:domains=info,weighting=uniform"), 3)[-1]
    np.testing.assert_allclose(run.state.examples, [5, 5, 1])
    assert np.isfinite(run.params["x"]).all()


def test_losses_too_large_for_exp_leave_the_worst_domain_and_the_others_a_mean():
    same(domain_weights(np.array([0.25, 0.5, 0.25]), np.array([1e4, 1.0, 1e4]), 1.0), [0.5, np.float32(1e-30), 0.5])
    p = testing.quadratic([1, 3], [0, 4], [1.0], steps=5, lr=0.1, schedule=[(0,), (1,)])
    ours, fedavg = (testing.trajectory(p, p.build(choice), 4)[-1] for choice in ("agnostic:lr=20", "fedavg"))
    np.testing.assert_allclose(ours.params["x"], fedavg.params["x"], rtol=1e-6)


def test_domains_need_a_partition_that_has_them():
    p = plain.problem()
    with pytest.raises(UserError, match="agnostic: domains=info needs clients that belong to domains"):
        testing.trajectory(p, p.build("agnostic:domains=info"), 1)
