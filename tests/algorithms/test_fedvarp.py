"""FedVARP and FedStale against plain numpy, between each other, and at full participation."""

import numpy as np
import pytest

from fedwin import testing
from tests.algorithms import numpy_clients as plain

ROUNDS = len(plain.SCHEDULE)


def rounds(beta, weighting):
    """Server models and the memory m_i after the last round, as the papers write them: sums over all clients."""
    x, memory, out = plain.START, np.zeros((3, 2)), []
    v = plain.SIZES / plain.SIZES.sum() if weighting == "samples" else np.full(3, 1 / 3)
    for cohort in plain.SCHEDULE:
        cohort = list(cohort)
        p = v[cohort] / v[cohort].sum()
        fresh = np.array([plain.descend(x, i) - x for i in cohort])
        x = x + p @ (fresh - beta * memory[cohort]) + beta * (v @ memory)
        memory[cohort] = fresh
        out.append(x)
    return out, memory


@pytest.mark.parametrize("choice,beta,weighting", [("fedvarp", 1.0, "uniform"), ("fedstale:beta=0.3", 0.3, "samples")])
def test_golden_rounds(choice, beta, weighting, double):
    p = plain.problem()
    ours = testing.trajectory(p, p.build(choice, weighting=weighting), ROUNDS)
    expected, memory = rounds(beta, weighting)
    np.testing.assert_allclose([plain.vector(run.params) for run in ours], expected, rtol=1e-9)
    np.testing.assert_allclose([plain.row(ours[-1].table, i) for i in range(3)], memory, rtol=1e-9)
