"""Fairness between clients: limits of q-FFL and agnostic FedAvg, and what is refused."""

import numpy as np
import pytest

from fedwin import testing
from fedwin.algorithms.agnostic import domain_weights
from tests.algorithms import numpy_clients as plain
from tests.refusals import refused


@pytest.mark.parametrize("q", [5, 0.5])
def test_clients_without_a_loss_leave_the_model_as_it_is(q):
    p = testing.quadratic([1.0, 2.0], [3.0, 3.0], [3.0], steps=1, lr=0.1, schedule=[[0, 1]])
    assert testing.trajectory(p, p.build(f"qffl:q={q}"), 1)[-1].params["x"] == 3


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
    found = domain_weights(np.array([0.25, 0.5, 0.25]), np.array([1e4, 1.0, 1e4]), 1.0)
    np.testing.assert_allclose(found, [0.5, np.float32(1e-30), 0.5], rtol=1e-9)
    p = testing.quadratic([1, 3], [0, 4], [1.0], steps=5, lr=0.1, schedule=[(0,), (1,)])
    ours, fedavg = (testing.trajectory(p, p.build(choice), 4)[-1] for choice in ("agnostic:lr=20", "fedavg"))
    np.testing.assert_allclose(ours.params["x"], fedavg.params["x"], rtol=1e-6)


def test_domains_need_a_partition_that_has_them():
    p = plain.problem()
    words = "agnostic: domains=info needs clients that belong to domains"
    refused(words, testing.trajectory, p, p.build("agnostic:domains=info"), 1)
