"""Dropout in networks."""

import pytest

from fedwin.models import build
from tests.models.networks.common import batch_of, drawn, run


@pytest.mark.parametrize("text,shape", [("emnist_cnn", (12, 12, 1)), ("pfl_cnn", (12, 12, 3))])
def test_dropout_differs_by_key_in_training_only(text, shape):
    model = build(text, shape, 10)
    variables, batch = drawn(model), batch_of(shape)
    a, b, c = (run(model, variables, batch, seed, train=True).logits for seed in (0, 0, 1))
    assert (a == b).all() and (a != c).any()
