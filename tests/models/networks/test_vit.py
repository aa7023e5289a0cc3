"""The vision transformer: patches, its number of parameters, what the classifier sees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin.models import build
from fedwin.models.networks.transformer import patches_of
from tests.models.networks.common import batch_of, drawn, run

SHAPE, CLASSES = (4, 6, 3), 5
SIZES = "patch=2,layers=1,width=8,heads=2"


def test_patches_are_the_images_tiles_row_by_row():
    images = np.random.default_rng(0).standard_normal((2, *SHAPE)).astype(np.float32)
    found = patches_of(jnp.asarray(images), 2)
    expected = [[image[i : i + 2, j : j + 2].reshape(-1) for i in (0, 2) for j in (0, 2, 4)] for image in images]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["token", "mean"])
def test_only_positions_tell_where_a_patch_is(pool):
    model = build(f"vit:{SIZES},pool={pool}", SHAPE, CLASSES)
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
