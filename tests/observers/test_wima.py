"""WIMA as a sum of server steps, and averages of a part of the model."""

import jax
import numpy as np
import pytest

from fedwin import engine, observers, testing
from tests import golden_problems as golden
from tests.algorithms.identities import META, T, models, problem, same

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize(
    "base", ["fedavg", "fedavg:server_lr=0.5", "fedavgm:beta=0.9", "fedopt:optimizer=adam,server_lr=0.1"]
)
def test_wima_is_a_weighted_sum_of_server_steps(base):
    p, sizes = problem("partial"), (1, 2, 5)
    watch = {"wima": observers.wima(tuple(observers.ReadOut(f"w{size}", size) for size in sizes))}
    algorithm = p.build(base)
    reads = [engine.read_out(algorithm, watch, run) for run in testing.trajectory(p, algorithm, T, watch)]
    trace = np.concatenate([[META["theta0"]], models(base)])
    steps = trace[:-1] - trace[1:]
    for size in sizes:
        read = np.stack([golden.vector(r[f"w{size}"].params) for r in reads])
        for t in range(size, T + 1):
            coefficients = np.arange(size, 0, -1) / size
            same(read[t - 1], trace[t - size] - coefficients @ steps[t - size : t])
        for t in range(size + 1, T + 1):
            same(read[t - 1], read[t - 2] + (trace[t] - trace[t - size]) / size)


def test_both_parts_of_wima_are_wima_and_none_is_the_model():
    params, average = {"a": 1.0, "b": {"c": 2.0}}, {"a": 3.0, "b": {"c": 4.0}}
    mask = observers.classifier_mask(params, ("b",))
    rest = jax.tree.map(lambda m: not m, mask)
    assert observers.select(mask, average, params) == {"a": 1.0, "b": {"c": 4.0}}
    assert observers.select(rest, average, params) == {"a": 3.0, "b": {"c": 2.0}}
    assert observers.select(rest, average, observers.select(mask, average, params)) == average
