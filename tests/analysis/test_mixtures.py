"""Mixtures of models, in one program and one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import analysis
from tests.analysis.common import RANDOM, network

ROWS = RANDOM(0).dirichlet([1, 1, 1], 7)


def squares(model):
    return {"sum": sum(jnp.sum(leaf.astype(float) ** 2) for leaf in jax.tree.leaves(model))}


@pytest.mark.parametrize("chunk", [1, 3, 7, 50, None])
def test_as_one_by_one(chunk):
    three = [network(seed) for seed in range(3)]
    found = analysis.mixtures(three, ROWS, squares, chunk=chunk)["sum"]
    direct = [squares(analysis.mix(row, three))["sum"] for row in ROWS]
    assert found.shape == (7,) and found.dtype == np.float64
    np.testing.assert_allclose(found, direct, rtol=1e-5)


def test_a_single_1_is_that_very_model():
    three = [network(seed, scale=1e3) for seed in range(3)]
    found = analysis.mixtures(three, np.eye(3), lambda model: model)
    for number, model in enumerate(three):
        jax.tree.map(lambda got, kept: np.testing.assert_array_equal(got[number], kept), found, model)


def test_any_number_of_points_is_one_dispatch_of_one_program(monkeypatch):
    dispatched, traced = [], []
    real = jax.jit

    def counted(function):
        program = real(function)
        return lambda *arguments: dispatched.append(program) or program(*arguments)

    monkeypatch.setattr(jax, "jit", counted)
    three = [network(seed) for seed in range(3)]
    traces = []
    for rows in (ROWS, np.tile(ROWS, (30, 1))):
        dispatched.clear(), traced.clear()
        analysis.mixtures(three, rows, lambda model: traced.append(1) or squares(model), chunk=4)
        assert len(dispatched) == 1 and dispatched[0]._cache_size() == 1
        traces.append(len(traced))
    assert traces[0] == traces[1] <= 2


def test_mixing_keeps_counters_and_dtypes():
    mixed = lambda count, value: {"count": jnp.int32(count), "w": jnp.full(2, value, jnp.bfloat16)}
    out = analysis.mix([0.25, 0.75], [mixed(3, 1.0), mixed(5, 2.0)])
    assert int(out["count"]) == 3 and out["w"].dtype == jnp.bfloat16 and float(out["w"][0]) == 1.75
    assert analysis.mix([0.5, 0.5], [{"w": np.full(2, 1 / 3)}] * 2)["w"].tolist() == [1 / 3] * 2  # float64, too
