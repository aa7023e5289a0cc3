"""FedAdamW against plain numpy."""

import jax
import numpy as np
import pytest

from fedwin import testing
from tests.algorithms import numpy_clients as clients

B1, B2, EPS, DECAY, ALPHA = 0.8, 0.9, 1e-3, 0.3, 0.4


def by_hand():
    """Models and mean second moments; both parameters of the model are arrays of one entry."""
    x, delta, mean, zero = clients.START, 0.0, np.zeros(2), 1.0
    for cohort in clients.SCHEDULE:
        ends = []
        for i in cohort:
            y, m, v = x, 0.0, mean
            for k, batch in enumerate(clients.batches(i), 1):
                g = clients.gradient(y, batch)
                m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
                step = m / (1 - B1**k) / (np.sqrt(v / (1 - zero * B2**k)) + EPS)
                y = y - clients.LR * (step + DECAY * y + ALPHA * delta)
            ends.append((y, v, zero * B2**k, clients.LR * k))
        share = clients.shares(cohort)
        y, mean, zero, length = (sum(p * end[n] for p, end in zip(share, ends)) for n in range(4))
        delta, x = (x - y) / length, y
        yield {"params": x, "state.1.v": mean}


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("blocks", ["array", "entry"])
def test_fedadamw_is_the_papers_rule(blocks):
    choice = f"fedadamw:b1={B1},b2={B2},eps={EPS},alpha={ALPHA},blocks={blocks}"
    clients.compare(choice, by_hand(), rtol=1e-12, weight_decay=DECAY)


def test_a_block_is_an_array_of_the_parameters():
    p = testing.classification()
    whole, means = (testing.trajectory(p, p.build(f"fedadamw:blocks={b}"), 1)[0].state[1].v for b in ("entry", "array"))
    for v, mean in zip(*map(jax.tree.leaves, (whole, means)), strict=True):
        assert v.size > 1 and mean.shape == ()
        np.testing.assert_allclose(mean, v.mean(), rtol=1e-6)
