"""The transformer against NumPy; causality, tied weights, its number of parameters."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin.models import build
from tests.models.networks.common import batch_of, drawn, run

LENGTH, VOCAB, LAYERS, WIDTH, HEADS = 7, 11, 2, 12, 3
SIZES = f"layers={LAYERS},width={WIDTH},heads={HEADS}"


def norm(p, x):
    centered = x - x.mean()
    return centered / math.sqrt((centered**2).mean() + 1e-5) * p["scale"] + p["bias"]


def dense(p, x):
    return x @ p["kernel"] + p["bias"]


def turned(x, position):
    """One head's query or key at a position: entries i and i + H/2 are a point that is turned about the origin."""
    half = len(x) // 2
    points = (x[:half] + 1j * x[half:]) * np.exp(1j * position * 10_000.0 ** (-np.arange(half) / half))
    return np.concatenate([points.real, points.imag])


def forward(params, tokens, rotary: bool):
    """Logits [T, V] of one row, position by position, each from those up to it."""
    table = params["embedding"]["embedding"] if "embedding" in params else params["classifier"]["kernel"].T
    xs = [table[token] + (0 if rotary else params["positions"][t]) for t, token in enumerate(tokens)]
    size = WIDTH // HEADS
    for layer in range(1, LAYERS + 1):
        p = params[f"block{layer}"]
        attention, inputs, sums = p["attention"], [norm(p["norm1"], x) for x in xs], []
        for t in range(len(xs)):
            heads = []
            for h in range(HEADS):
                part = slice(h * size, (h + 1) * size)
                turn = turned if rotary else lambda x, position: x
                query = turn(dense(attention["query"], inputs[t])[part], t)
                keys = [turn(dense(attention["key"], inputs[s])[part], s) for s in range(t + 1)]
                weights = np.exp([query @ key / math.sqrt(size) for key in keys])
                values = [dense(attention["value"], inputs[s])[part] for s in range(t + 1)]
                heads.append(sum(w * v for w, v in zip(weights / weights.sum(), values)))
            sums.append(xs[t] + dense(attention["out"], np.concatenate(heads)))
        xs = []
        for x in sums:
            z = dense(p["up"], norm(p["norm2"], x))
            gelu = 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
            xs.append(x + dense(p["down"], gelu))
    return np.stack([norm(params["norm"], x) @ params["classifier"]["kernel"] for x in xs])


def as_numpy(params):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), params)


@pytest.mark.parametrize("options", ["", ",positions=rotary", pytest.param(",tie=false", marks=pytest.mark.slow)])
def test_logits_are_those_of_numpy_and_no_position_sees_later_ones(options):
    model = build(f"transformer:{SIZES}{options}", (LENGTH,), VOCAB)
    # Larger weights than the initial ones, so that attention is far from uniform.
    variables = jax.tree.map(lambda x: 4 * x, drawn(model))
    tokens = np.array(batch_of((LENGTH,), 3, vocab=VOCAB)["x"])
    tokens[1], tokens[2] = tokens[0], tokens[0]
    tokens[1, 4:], tokens[2, -1] = (tokens[1, 4:] + 1) % VOCAB, (tokens[2, -1] + 1) % VOCAB
    logits = np.asarray(run(model, variables, {"x": jnp.asarray(tokens)}).logits)
    expected = [forward(as_numpy(variables.params), row, "rotary" in options) for row in tokens]
    np.testing.assert_allclose(logits, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(logits[0, :4], logits[1, :4])
    np.testing.assert_array_equal(logits[0, :-1], logits[2, :-1])
    assert abs(logits[0, 4:] - logits[1, 4:]).max(-1).min() > 0.01
