"""Client weights and weighted means."""

import jax.numpy as jnp
import numpy as np

from fedwin import core, testing


def test_a_client_without_examples_has_no_weight():
    p = testing.quadratic([1.0, 1.0], [3.0, -2.0], [0.0], steps=1, lr=1.0, schedule=[[0, 1]], sizes=[1, 3])
    for size, samples, uniform in ((3, 3, 1), (1, 1, 1), (0, 0, 0)):
        c = p.client(0)._replace(size=jnp.int32(size))
        weights = [int(core.aggregation_weight(c, weighting)) for weighting in ("samples", "uniform")]
        assert weights == [samples, uniform]


def test_the_mean_step_of_a_message_is_the_only_one_in_it():
    step, other = (core.mean_step({"w": jnp.full(2, value)}, 3) for value in (1.0, 2.0))
    assert core.mean_step_of({"delta": step, "count": jnp.ones(())}) is step
    assert core.mean_step_of({"delta": step, "other": other}) is None
    assert core.mean_step_of({"gradient": core.mean(jnp.ones(2), 3)}) is None
    message = core.with_mean_step({"delta": step, "count": jnp.ones(())}, core.Mean(*other))
    # It stays a mean step: a further wrapper finds it.
    np.testing.assert_array_equal(core.mean_step_of(message).value["w"], [2.0, 2.0])
    assert float(message["count"]) == 1


def test_booleans_and_integers_have_means():
    assert core.mean(jnp.array([True, False]), 3).total.tolist() == [3, 0]
    assert core.mean(jnp.int32(5), 0.5).value == 5 and core.mean({"x": 1.5}, 2).value == {"x": 1.5}
