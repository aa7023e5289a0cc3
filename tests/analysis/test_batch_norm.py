"""Recomputed BatchNorm statistics."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from fedwin import analysis, models, testing
from fedwin.models import layers
from tests.analysis.common import RANDOM


def test_recomputed_statistics_are_those_of_the_data():
    model = testing.classification().setting.model
    variables = model.init(jax.random.key(3))
    x = RANDOM(0).standard_normal((10, 2)).astype(np.float32)
    mask = np.array([1, 1, 0, 0], np.float32)
    padded = np.concatenate([x[8:], np.zeros((2, 2), np.float32)])
    batches = [{"x": x[:4]}, {"x": x[4:8]}, {"x": padded, "mask": mask}, {"x": padded, "mask": 0 * mask}]
    out = analysis.recomputed(model, variables._replace(stats={"mean": jnp.full(4, 7.0)}), batches)
    np.testing.assert_allclose(out.stats["mean"], np.tanh(x @ variables.params["hidden"]["kernel"]).mean(0), atol=2e-6)
    jax.tree.map(np.testing.assert_array_equal, out.params, variables.params)


class TwoNorms(nn.Module):
    @nn.compact
    def __call__(self, x, train, mask=None):
        hidden = nn.Dense(5)(layers.BatchNorm()(x, train, mask))
        return nn.Dense(3)(jnp.tanh(layers.BatchNorm()(hidden, train, mask)))


def test_recomputed_statistics_of_batch_norm_layers():
    model = models.from_flax(TwoNorms(), (2,))
    variables = model.init(jax.random.key(0))
    x = 100 + 5 * RANDOM(0).standard_normal((16, 2)).astype(np.float32)
    stats = analysis.recomputed(model, variables, [{"x": x, "y": np.zeros(16, np.int32)}]).stats
    dense = variables.params["Dense_0"]
    hidden = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) @ dense["kernel"] + dense["bias"]
    for norm, values in zip(jax.tree.leaves(stats, is_leaf=lambda s: "mean" in s), (x, hidden), strict=True):
        np.testing.assert_allclose(norm["mean"], values.mean(0), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(norm["var"], values.var(0, ddof=1), rtol=1e-4)
