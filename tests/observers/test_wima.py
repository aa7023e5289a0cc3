"""WIMA as a sum of server steps, averages of a part of the model, SWA and EMA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import observers
from fedwin.core import Variables
from tests.algorithms.identities import problem
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("double")


def test_a_part_of_wima_is_that_of_the_mean_and_the_rest_that_of_the_model():
    model = lambda value: Variables(
        {"a": jnp.float64(value), "b": {"c": jnp.float64(10 * value)}}, {"mean": jnp.float64(-value)}
    )
    observer = observers.wima(tuple(observers.ReadOut(p, 2, p) for p in ("classifier", "features")), ("b",))
    state = observer.init(model(0.0))
    for t, value in enumerate((1.0, 3.0)):
        state = observer.update(t, model(value), state)
    found = {name: tuple(read) for name, read in observer.read(model(3.0), state).items()}
    assert found["classifier"] == ({"a": 3, "b": {"c": 20}}, {"mean": -3})
    assert found["features"] == ({"a": 2, "b": {"c": 30}}, {"mean": -2})
    refused("besides its classifier", observers.mask_of_part, {"b": {"c": 1}}, "features", ("b",), "wima")


def test_an_exponential_average_begins_with_the_first_trained_model():
    observer = observers.ema(problem("partial").setting, decay=0.75)
    model = lambda value: Variables({"w": jnp.float64(value)})
    state = observer.init(model(9.0))
    for t, value in enumerate((1.0, 3.0)):
        state = observer.update(t, model(value), state)
    assert observer.read(model(3.0), state)["ema"].params["w"] == 1.5
    with jax.enable_x64(False):
        update = observers.ema(problem("partial").setting, decay=0.9999).update
        share = lambda old, new: float(update(1, jnp.float32(new), observers.Average(jnp.float32(old), 1)).model)
        assert share(1, 0) + share(0, 1) == 1


@pytest.mark.parametrize(
    "begin, phase, before, collected",
    [(8, "code", 3, (12, 14)), (12, "code", 1, (12, 14)), (13, "code", 3, (14,)), (12, "swa", 3, (13,))],
)
def test_swa_of_a_fork_with_a_later_start_begins_anew(begin, phase, before, collected):
    """Its parent has collected some models; the first one from `start`, or the fork, on takes their place."""
    observer = observers.swa(problem("partial").setting._replace(num_rounds=20), start=10, cycle=2, phase=phase)
    model = lambda value: Variables({"w": jnp.float64(value)})
    state = observers.Average(model(5.0), jnp.int32(before))
    for t in range(begin, 15):
        state = observer.update(t, model(t), state)
    assert state.model.params["w"] == np.mean(collected) and state.count == len(collected)


def test_swa_of_equal_models_is_that_model_in_float32():
    with jax.enable_x64(False):
        observer, one = observers.swa(problem("partial").setting, start=0, cycle=1), jnp.ones(8, jnp.float32)
        average = jax.lax.fori_loop(0, 1000, lambda t, state: observer.update(t, one, state), observer.init(one))
    np.testing.assert_array_equal(average.model, one)


@pytest.mark.parametrize("choice, expected", [("ema:decay=0.99", 1.9), ("swa:start=0,cycle=1", 1.5)])
def test_averages_of_models_in_low_precision_are_kept_in_float32(choice, expected):
    """Of models that rise from 1 to 2 in steps that bfloat16 cannot add to 1."""
    ((name, observer),) = observers.build_all([choice], problem("partial").setting).items()
    model = lambda t: jnp.asarray(1 + t / 1000, jnp.bfloat16)
    state = jax.lax.fori_loop(0, 1000, lambda t, state: observer.update(t, model(t), state), observer.init(model(0)))
    average = observer.read(model(999), state)[name]
    assert average.dtype == jnp.bfloat16 and abs(float(average) - expected) < 0.01


DECAYS = {
    "linear": lambda s: 1 - s,
    "cosine": lambda s: (1 + np.cos(np.pi * s)) / 2,
    "inverse_sqrt": lambda s: 1 - np.sqrt(s),
    "quadratic": lambda s: 1 - s**2,
}


def read(weights, window, values, **options):
    """Returns the read-out after each of some models that are one number, [T]."""
    observer = observers.wima((observers.ReadOut("it", window, weights=weights, **options),))
    model = lambda value: Variables({"w": jnp.float64(value)})
    state, found = observer.init(model(0.0)), []
    for t, value in enumerate(values):
        state = observer.update(t, model(value), state)
        found.append(float(observer.read(model(value), state)["it"].params["w"]))
    return np.array(found)


@pytest.mark.parametrize("name", DECAYS)
def test_weights_are_those_of_decayed_steps(name):
    """From x_0 on, the steps of a window taken at f(i/n) of the rate end in its weighted mean (Theorem 3.1 of WSM)."""
    values = np.random.default_rng(0).normal(size=9)
    found = read(name, 6, values)
    for t in range(9):
        models = values[max(t - 5, 0) : t + 1]
        rates = DECAYS[name](np.arange(1, len(models)) / len(models))
        np.testing.assert_allclose(found[t], models[0] + rates @ np.diff(models), rtol=1e-12)


def test_weights_that_are_numbers():
    values = np.random.default_rng(1).normal(size=5)
    want = [values[0], (3 * values[1] + 2 * values[0]) / 5]
    want += [(3 * values[t] + 2 * values[t - 1] + values[t - 2]) / 6 for t in (2, 3, 4)]
    np.testing.assert_allclose(read("3-2-1", 3, values), want, rtol=1e-12)
    np.testing.assert_array_equal(read([6, 4, 2], 3, values), read("3-2-1", 3, values))
    np.testing.assert_array_equal(read([3, 2, 1], 3, values, warmup="raw")[:2], values[:2])
    assert read([1, -1, 2], 3, values)[1] == values[1]  # the weights of the first two models sum to 0
    # Extrapolation; the newest model has weight 0, but for the first round's.
    np.testing.assert_allclose(
        read([0, 2, -1], 3, values), [*values[[0, 0]], *(2 * values[1:4] - values[:3])], rtol=1e-12
    )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("triangle", "must be one of uniform, linear, cosine, inverse_sqrt, quadratic, or 3 numbers such as 3-2-1"),
        ("1-2", "are 2 numbers for window=3"),
        ([1, -2, 1], "finite numbers whose sum is not 0"),
        ([1, float("nan"), 1], "finite numbers whose sum is not 0"),
        (7, "must be one of"),
    ],
)
def test_unusable_weights_are_refused(weights, message):
    refused(message, read, weights, 3, [1.0])
