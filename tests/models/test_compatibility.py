"""Checks that a model fits a data set, from shapes alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import Config, data, models
from fedwin.core import Variables
from fedwin.models import Model, Output
from fedwin.runs.prepare import prepare
from tests.refusals import refused

SHAPE = (8, 8, 1)


def hand_made(outputs=10, shape=lambda y: y, init=None, stats=(), new_stats=None, wrap=Output, num_classes=10):
    """A custom logistic regression with one error."""
    first = lambda key: Variables(jnp.zeros((64, outputs)), stats)

    def apply(variables, batch, key, train):
        logits = shape(batch["x"].reshape(-1, 64) @ variables.params)
        return wrap(logits, (), variables.stats if new_stats is None else new_stats)

    return Model(init or first, apply, None, (), "mine", num_classes)


def noisy(variables, batch, key, train):  # an evaluation has no key
    return Output(jax.random.normal(key, (2, 10)), (), variables.stats)


def test_too_few_outputs_are_refused():
    for outputs in (10, 12):
        model = hand_made(outputs, num_classes=outputs)
        assert models.check(model, SHAPE, 10, input_dtype=np.uint8) is model
    refused("has 3 outputs, too few for the data's 10 classes", models.check, hand_made(3, num_classes=3), SHAPE, 10)


@pytest.mark.parametrize(
    "model, words",
    [
        (object(), "is not a fedwin.models.Model; wrap it with models.from_flax"),
        (hand_made(shape=lambda y: y[:, 0]), r"logits of shape \(2,\) for 2 examples; the data need .* = \[2, 10\]"),
        (hand_made(wrap=lambda *out: out[0]), "must return fedwin.models.Output"),
        (hand_made(init=lambda key: Variables(jnp.zeros((7, 10)))), "does not take examples of shape"),
        (hand_made(init=lambda key: Variables([jnp.zeros((64, 10)), 0])), "parameters that are not floating-point"),
        (hand_made(stats=jnp.zeros(3), new_stats=jnp.zeros(4)), "statistics unlike those of init"),
        (hand_made()._replace(apply=noisy), "in evaluation, where key is None, does not take"),
    ],
)
def test_models_that_do_not_fit(model, words):
    refused(words, models.check, model, SHAPE, 10)


def test_sequences_take_an_output_per_token_or_per_row():
    for predict in ("all", "last"):
        model = models.build(f"leaf_lstm:predict={predict},hidden=4", (7,), 20)
        models.check(model, (7,), 20, input_dtype=np.int32, label_shape=(7,))
    every = models.build("leaf_lstm:predict=all,hidden=4", (7,), 20)
    words = ["[B, C] = [2, 20] or [B, T, C] = [2, 5, 20]"]
    refused(words, models.check, every, (7,), 20, input_dtype=np.int32, label_shape=(5,))


def test_nothing_is_computed():
    def init(key):
        assert isinstance(key, jax.core.Tracer)
        return Variables(jnp.zeros((64, 10)))

    models.check(hand_made(init=init), SHAPE, 10)


def test_a_run_refuses_its_model_before_it_begins():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, *SHAPE)).astype(np.float32), np.arange(40) % 10
    dataset = data.from_arrays(x, y, x, y)
    config = Config(num_clients=4, clients_per_round=2, num_rounds=2)
    refused("'mine' has 3 outputs, too few for the data's 10 classes", prepare, config, dataset, hand_made(3))
    models.MODELS.register("without_dtype", lambda input_shape, num_classes: hand_made())
    refused("has no dtype; omit --precision", prepare, Config(model="without_dtype", precision="bfloat16"), dataset)
    refused("dtype is given twice", prepare, Config(model="cnn:dtype=float32", precision="bfloat16"), dataset)
