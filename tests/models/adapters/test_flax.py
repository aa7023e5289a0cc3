"""Modules of flax as fedwin models."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from fedwin.models import from_flax
from fedwin.testing import compile_options
from tests.models.networks.common import images
from tests.refusals import refused


class Plain(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        x = nn.Dropout(0.5, deterministic=not train)(nn.Dense(6)(x))
        return nn.Dense(3)(x)


def test_flax_module_without_cooperation():
    model = from_flax(Plain(), (8, 8, 1), 3)
    variables, x = model.init(jax.random.key(0)), images()
    assert model.classifier_path == ("Dense_1",) and model.num_classes == 3
    assert from_flax(Plain(), (8, 8, 1), classifier_path=("Dense_0",)).classifier is None
    apply = jax.jit(model.apply, static_argnums=3, compiler_options=compile_options())
    out = apply(variables, {"x": x}, jax.random.key(1), False)
    theirs = Plain().apply({"params": variables.params, "batch_stats": variables.stats}, x, False)
    np.testing.assert_allclose(out.logits, theirs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.classifier(variables.params, out.features), out.logits, rtol=1e-5, atol=1e-6)
    a, b = (apply(variables, {"x": x}, jax.random.key(k), True) for k in (1, 2))
    assert (a.logits != b.logits).any()
    assert (jax.tree.leaves(a.stats)[0] != jax.tree.leaves(variables.stats)[0]).any()
    refused("3 outputs, the data 5 classes", from_flax, Plain(), (8, 8, 1), 5)


class Returns(nn.Module):
    """Returns what `what` makes of its logits."""

    what: Callable

    @nn.compact
    def __call__(self, x):
        return self.what(nn.Dense(3)(x.reshape(len(x), -1)))


class Flat(nn.Module):
    @nn.compact
    def __call__(self, x):
        batch, features = x.shape
        return nn.Dense(3)(x)


class Counting(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.variable("cache", "calls", jnp.zeros, ())
        return nn.Dense(3)(x.reshape(len(x), -1))


@pytest.mark.parametrize(
    "make, options, words",
    [
        (Flat, {}, r"Flat does not take examples of shape \(8, 8, 1\)"),
        (Counting, {}, "Counting keeps state in .*'cache'"),
        (lambda: Returns(lambda y: jnp.argmax(y, -1, keepdims=True)), {}, "int32 of shape"),
        (lambda: Returns(lambda y: y), dict(dtype="1-2-3"), "dtype=1-2-3 must be one of float32, bfloat16"),
        (lambda: Returns(lambda y: y), dict(classifier_path=("last",)), "begin with 'Dense_0'"),
    ],
)
def test_modules_that_cannot_be_wrapped(make, options, words):
    refused(words, from_flax, make(), (8, 8, 1), **options)
