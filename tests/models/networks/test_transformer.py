"""The transformer against NumPy; causality, tied weights; what the vision transformer's patches and positions are."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin.models import build
from fedwin.models.networks.transformer import patches_of
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


@pytest.mark.parametrize("options", ["", ",positions=rotary", pytest.param(",tie=false", marks=pytest.mark.slow)])
def test_logits_are_those_of_numpy_and_no_position_sees_later_ones(options):
    model = build(f"transformer:{SIZES}{options}", (LENGTH,), VOCAB)
    # Larger weights than the initial ones, so that attention is far from uniform.
    variables = jax.tree.map(lambda x: 4 * x, drawn(model))
    tokens = np.array(batch_of((LENGTH,), 3, vocab=VOCAB)["x"])
    tokens[1], tokens[2] = tokens[0], tokens[0]
    tokens[1, 4:], tokens[2, -1] = (tokens[1, 4:] + 1) % VOCAB, (tokens[2, -1] + 1) % VOCAB
    logits = np.asarray(run(model, variables, {"x": jnp.asarray(tokens)}).logits)
    wide = jax.tree.map(lambda x: np.asarray(x, np.float64), variables.params)
    expected = [forward(wide, row, "rotary" in options) for row in tokens]
    np.testing.assert_allclose(logits, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(logits[0, :4], logits[1, :4])
    np.testing.assert_array_equal(logits[0, :-1], logits[2, :-1])
    assert abs(logits[0, 4:] - logits[1, 4:]).max(-1).min() > 0.01


SHAPE = (4, 6, 3)


def test_patches_are_the_images_tiles_row_by_row():
    images = np.random.default_rng(0).standard_normal((2, *SHAPE)).astype(np.float32)
    found = patches_of(jnp.asarray(images), 2)
    expected = [[image[i : i + 2, j : j + 2].reshape(-1) for i in (0, 2) for j in (0, 2, 4)] for image in images]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["token", "mean"])
def test_only_positions_tell_where_a_patch_is(pool):
    model = build(f"vit:patch=2,layers=1,width=8,heads=2,pool={pool}", SHAPE, 5)
    # Larger weights than the initial ones, so that attention is far from uniform.
    variables, batch = jax.tree.map(lambda x: 5 * x, drawn(model)), batch_of(SHAPE, 2)
    # The image whose two rows of patches have changed places.
    swapped = {"x": jnp.roll(batch["x"], 2, axis=1)}
    nowhere = variables._replace(params=variables.params | {"positions": 0 * variables.params["positions"]})
    logits = lambda v, b: np.asarray(run(model, v, b).logits)
    np.testing.assert_allclose(logits(nowhere, swapped), logits(nowhere, batch), rtol=1e-4, atol=1e-6)
    assert abs(logits(variables, swapped) - logits(variables, batch)).max() > 1e-3
    # Every patch reaches the classifier: attention is not causal.
    first = batch["x"].at[:, :2, :2].add(1.0), batch["x"].at[:, -2:, -2:].add(1.0)
    assert all(abs(logits(variables, {"x": x}) - logits(variables, batch)).max() > 1e-4 for x in first)
