"""CNNs with dropout."""

import jax
import pytest

from fedwin.models import build
from fedwin.models.networks import dropout_cnn
from tests.models.networks.common import abstract, batch_of, drawn, run


@pytest.mark.parametrize("text,shape", [("emnist_cnn", (12, 12, 1)), ("pfl_cnn", (12, 12, 3))])
def test_dropout_differs_by_key_in_training_only(text, shape):
    model = build(text, shape, 10)
    variables, batch = drawn(model), batch_of(shape)
    a, b, c = (run(model, variables, batch, seed, train=True).logits for seed in (0, 0, 1))
    assert (a == b).all() and (a != c).any()


def test_dropout_rates_are_a_quarter_and_a_half(monkeypatch):
    rates = []
    monkeypatch.setattr(dropout_cnn, "dropout", lambda x, rate, key, train: rates.append((rate, train)) or x)
    model = build("emnist_cnn", (12, 12, 1), 10)
    jax.eval_shape(lambda v: model.apply(v, batch_of((12, 12, 1)), jax.random.key(0), True), abstract(model))
    assert rates[-2:] == [(0.25, True), (0.5, True)]
