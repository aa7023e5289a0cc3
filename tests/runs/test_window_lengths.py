"""Windows and delays longer than the run: memory bounded by the run's length, equal results."""

import dataclasses

import jax
import numpy as np
import pytest

from fedwin import testing, tree
from fedwin.core import Variables
from fedwin.observers import ReadOut, wima
from fedwin.runs.prepare import prepare
from tests.small_runs import small

SMALL = small(
    num_clients=12, clients_per_round=2, eval_every=1, algorithm="ghb", observe=["wima:window=3", "wima:window=500"]
)


@pytest.mark.parametrize("warmup", ["partial", "raw"])
def test_a_window_longer_than_the_run_reads_the_same_to_the_bit(warmup):
    rounds = 5
    readings = tuple(ReadOut(f"w{size}", size, warmup=warmup) for size in (2, 5, 6, 40, 1))
    states = {}
    for num_rounds in (None, rounds):
        observer = wima(readings, (), num_rounds)
        model = Variables({"w": np.zeros(3, np.float32)})
        state, seen = observer.init(model), []
        for t in range(rounds):
            model = Variables({"w": np.float32(np.random.default_rng(t).normal(size=3))})
            state = observer.update(t, model, state)
            seen.append(observer.read(model, state))
        states[num_rounds] = state, seen
    (long, first), (short, second) = states.values()
    assert long.ring.shape[0] == 41 and short.ring.shape[0] == rounds + 1
    jax.tree.map(np.testing.assert_array_equal, (first, long.sums), (second, short.sums))


def test_a_long_window_and_a_default_delay_cost_no_more_than_the_run():
    held = {}
    for window in (6, 50_000):
        prepared = prepare(dataclasses.replace(SMALL, observe=[f"wima:window={window}"], num_clients=1000))
        state = jax.eval_shape(lambda prepared=prepared: prepared.start(0, 1))
        held[window] = tree.nbytes((state.observers, state.state))
    assert held[6] == held[50_000]


def test_a_default_delay_that_the_run_never_reaches_is_no_momentum():
    """tau = 1 / C = 4 rounds in a run of 3, which is FedAvg's; a run of 6 is not."""
    p = testing.quadratic([1.0, 2.0, 1.0, 3.0], [3.0, -2.0, 0.0, 1.0], [1.0], steps=2, lr=0.1, schedule=[[0], [3]])
    for rounds, slots in ((3, 3), (6, 4)):
        p = p._replace(setting=p.setting._replace(num_rounds=rounds))
        ghb, fedavg = (testing.trajectory(p, p.build(name), rounds) for name in ("ghb", "fedavg"))
        assert ghb[0].state.ring.shape[0] == slots
        assert np.array_equal(ghb[-1].params["x"], fedavg[-1].params["x"]) == (rounds == 3)
