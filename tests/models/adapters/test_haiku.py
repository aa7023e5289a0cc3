"""Transforms of haiku as fedwin models."""

import haiku as hk
import jax
import numpy as np
import pytest

from fedwin.models import from_haiku
from tests.models.networks.common import images
from tests.refusals import refused


def test_haiku_with_and_without_state():
    def forward(batch, is_training):
        x = hk.BatchNorm(True, True, 0.9)(hk.Conv2D(4, 3)(batch["x"]), is_training)
        return hk.Linear(3)(hk.Flatten()(jax.nn.relu(x)))

    stateless = hk.transform(lambda batch: hk.Linear(3)(hk.Flatten()(hk.Conv2D(4, 3)(batch["x"]))))
    sample = {"x": images(1)}
    model = from_haiku(stateless, sample)
    variables = model.init(jax.random.key(0))
    out = model.apply(variables, {"x": images()}, jax.random.key(0), True)
    assert out.logits.shape == (3, 3) and model.classifier_path == ("linear",) and out.stats == ()
    np.testing.assert_allclose(model.classifier(variables.params, out.features), out.logits, rtol=1e-5, atol=1e-6)

    options = dict(train_kwargs={"is_training": True}, eval_kwargs={"is_training": False})
    model = from_haiku(hk.transform_with_state(forward), sample, 3, **options)
    variables = model.init(jax.random.key(0))
    out = jax.jit(model.apply, static_argnums=3)(variables, {"x": images()}, jax.random.key(0), True)
    assert jax.tree.structure(out.stats) == jax.tree.structure(variables.stats)
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(out.stats), jax.tree.leaves(variables.stats)))


def with_state(batch):
    return hk.Linear(3)(hk.Flatten()(hk.BatchNorm(True, True, 0.9)(batch["x"], True)))


def linear(batch):
    return hk.Linear(3)(hk.Flatten()(batch["x"]))


@pytest.mark.parametrize(
    "transformed, options, words",
    [
        (hk.transform(with_state), {}, "use `hk.transform_with_state`"),
        (hk.without_apply_rng(hk.transform(linear)), {}, "not hk.without_apply_rng's"),
        (linear, {}, "wrap the function in hk.transform"),
        (hk.transform(linear), dict(classifier_path=("last",)), "begin with 'linear'"),
    ],
)
def test_transforms_that_cannot_be_wrapped(transformed, options, words):
    refused(words, from_haiku, transformed, {"x": images(1)}, **options)
