"""Language models: targets, inputs and padding."""

import jax
import numpy as np
import pytest

from fedwin import losses
from fedwin.engine import evaluate
from fedwin.models import build
from fedwin.models.networks import lstm
from tests.models.networks.common import batch_of, drawn, run

# BOS 1, EOS 2: a short sentence, one that EOS just fits in, one that is cut, and one word.
SENTENCES = np.array([[1, 5, 6, 7, 0, 0], [1, 5, 6, 7, 8, 9], [1, 5, 6, 7, 8, 9], [1, 5, 0, 0, 0, 0]], np.int32)


NEXT = np.array([[5, 6, 7, 2, 0, 0], [5, 6, 7, 8, 9, 2], [5, 6, 7, 8, 9, 4], [5, 2, 0, 0, 0, 0]], np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stackoverflow_lstm", "shakespeare_lstm"])
def test_the_last_word_of_a_padded_sentence_is_predicted_from_what_is_before_it(name):
    one, every = build(f"{name}:predict=last", (6,), 12), build(f"{name}:predict=all", (6,), 12)
    variables = drawn(one)
    batch = {"x": SENTENCES, "y": NEXT, "mask": np.ones(4, np.float32)}
    last, full = (run(model, variables, batch).logits for model in (one, every))
    places = np.array([2, 5, 5, 0])
    np.testing.assert_array_equal(losses.last_target(SENTENCES), places)
    np.testing.assert_array_equal(losses.last_target(NEXT), places)  # inputs and labels say the same
    np.testing.assert_allclose(last, full[np.arange(4), places], rtol=1e-5, atol=1e-6)
    _, targets = losses.aligned(last, NEXT)
    assert targets[:, 0].tolist() == [7, 2, 4, 5]
    expected = np.mean(losses.nll(last, np.array([7, 2, 4, 5])))
    loss = losses.LOSSES.build("cross_entropy", one)(variables.params, (), batch, jax.random.key(1), ())[0]
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    found = evaluate.sequence({"accuracy": ((0, 2, 11), (0, 1, 2, 11))})(jax.nn.one_hot(targets[:, 0], 12), batch)
    assert float(found["accuracy"].value) == 1 and float(found["accuracy"].weight) == 3  # EOS is not counted


def test_lstm_predicts_last_or_all():
    shapes = {}
    for predict in ("last", "all"):
        model = build(f"leaf_lstm:predict={predict}", (7,), 80)
        variables = drawn(model)
        shapes[predict] = run(model, variables, batch_of((7,), 2)).logits
    assert shapes["last"].shape == (2, 80) and shapes["all"].shape == (2, 7, 80)
    np.testing.assert_allclose(shapes["all"][:, -1], shapes["last"], rtol=1e-4, atol=1e-5)


def test_the_fedjax_form_adds_one_to_the_forget_gate():
    haiku, torch = (lstm.LanguageModel(7, 3, 4, 1, "all", initializer=name) for name in ("haiku", "torch"))
    tokens = batch_of((5,), 2, vocab=7)["x"]
    shapes = jax.eval_shape(torch.init, jax.random.key(0), tokens)["params"]
    params = jax.tree.map(lambda leaf: np.random.default_rng(leaf.size).normal(size=leaf.shape), shapes)
    forget = np.repeat([0.0, 0, 1, 0], 4)
    moved = {**params, "lstm1": {**params["lstm1"], "bias": params["lstm1"]["bias"] + forget}}
    a, b = (jax.jit(model.apply)({"params": p}, tokens)[0] for model, p in ((haiku, params), (torch, moved)))
    np.testing.assert_allclose(a, b, rtol=1e-6)
