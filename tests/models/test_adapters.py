"""Modules of flax, transforms of haiku and models of FedJAX as fedwin models."""

from collections.abc import Callable

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from fedwin.models import from_fedjax, from_flax, from_haiku
from tests.models.networks.common import images, run
from tests.refusals import refused


class Plain(nn.Module):
    @nn.compact
    def __call__(self, x, mask, deterministic, use_running_average=True):
        x = nn.relu(nn.Conv(4, (3, 3))(x * mask[:, None, None, None]))
        x = nn.BatchNorm(use_running_average)(x)
        x = nn.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        kernel = nn.with_partitioning(nn.initializers.lecun_normal(), ("in", "out"))
        x = nn.Dropout(0.5, deterministic=deterministic)(nn.Dense(6, kernel_init=kernel)(x))
        return nn.Dense(3)(inputs=x)


def test_flax_module_without_cooperation():
    model = from_flax(Plain(), (8, 8, 1), 3)
    variables, x = model.init(jax.random.key(0)), images()
    assert model.classifier_path == ("Dense_1",) and model.num_classes == 3
    assert from_flax(Plain(), (8, 8, 1), classifier_path=("Dense_0",)).classifier is None
    out = run(model, variables, {"x": x})
    theirs = Plain().apply({"params": variables.params, "batch_stats": variables.stats}, x, jnp.ones(len(x)), True)
    np.testing.assert_allclose(out.logits, theirs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.classifier(variables.params, out.features), out.logits, rtol=1e-5, atol=1e-6)
    a, b = (run(model, variables, {"x": x}, seed, train=True) for seed in (1, 2))
    assert (a.logits != b.logits).any()
    assert (jax.tree.leaves(a.stats)[0] != jax.tree.leaves(variables.stats)[0]).any()
    refused("3 outputs, the data 5 classes", from_flax, Plain(), (8, 8, 1), 5)
    inside = from_flax(nn.remat(Returns)(lambda y: y), (8, 8, 1))
    assert inside.classifier is None and run(inside, inside.init(jax.random.key(0)), {"x": x}).features == ()


class Returns(nn.Module):
    """Returns what `what` makes of its logits."""

    what: Callable

    @nn.compact
    def __call__(self, x):
        return self.what(nn.Dense(3)(x.reshape(len(x), -1)))


class Counting(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.variable("cache", "calls", jnp.zeros, ())
        return nn.Dense(3)(x.reshape(len(x), -1))


@pytest.mark.parametrize(
    "make, options, words",
    [
        (lambda: Returns(lambda y: y @ y), {}, r"Returns does not take examples of shape \(8, 8, 1\)"),
        (Counting, {}, "Counting keeps state in .*'cache'"),
        (lambda: Returns(lambda y: jnp.argmax(y, -1, keepdims=True)), {}, "int32 of shape"),
        (lambda: Returns(lambda y: y), dict(dtype="1-2-3"), "dtype=1-2-3 must be one of float32, bfloat16"),
        (lambda: Returns(lambda y: y), dict(classifier_path=("last",)), "begin with 'Dense_0'"),
    ],
)
def test_modules_that_cannot_be_wrapped(make, options, words):
    refused(words, from_flax, make(), (8, 8, 1), **options)


def test_haiku_with_and_without_state():
    def forward(batch, is_training):
        x = hk.BatchNorm(True, True, 0.9)(hk.Conv2D(4, 3)(batch["x"]), is_training)
        return hk.Linear(3)(hk.Flatten()(jax.nn.relu(x)))

    stateless = hk.transform(lambda batch: hk.Linear(3)(inputs=hk.Flatten()(hk.Conv2D(4, 3)(batch["x"]))))
    sample = {"x": images(1)}
    model = from_haiku(stateless, sample)
    variables = model.init(jax.random.key(0))
    out = model.apply(variables, {"x": images()}, jax.random.key(0), True)
    assert out.logits.shape == (3, 3) and model.classifier_path == ("linear",) and out.stats == ()
    np.testing.assert_allclose(model.classifier(variables.params, out.features), out.logits, rtol=1e-5, atol=1e-6)
    inside = from_haiku(hk.transform(lambda batch: hk.remat(lambda: linear(batch))()), sample)
    assert inside.classifier is None and run(inside, inside.init(jax.random.key(0)), {"x": images()}).features == ()

    options = dict(train_kwargs={"is_training": True}, eval_kwargs={"is_training": False})
    model = from_haiku(hk.transform_with_state(forward), sample, 3, **options)
    variables = model.init(jax.random.key(0))
    out = run(model, variables, {"x": images()}, train=True)
    assert jax.tree.structure(out.stats) == jax.tree.structure(variables.stats)
    assert {leaf.dtype for leaf in jax.tree.leaves((out.stats, variables.stats))} == {jnp.dtype("float32")}
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
    ],
)
def test_transforms_that_cannot_be_wrapped(transformed, options, words):
    refused(words, from_haiku, transformed, {"x": images(1)}, **options)


@pytest.mark.slow
def test_fedjax_model_equals_itself():
    theirs = fedjax.models.emnist.create_conv_model(only_digits=True)
    model = from_fedjax(theirs, {"x": images(1, 28)})
    variables, batch = jax.jit(model.init)(jax.random.key(0)), {"x": images(2, 28)}
    out = run(model, variables, batch)
    want = jax.jit(theirs.apply_for_eval)(variables.params, batch)
    np.testing.assert_allclose(out.logits, want, rtol=1e-4, atol=1e-5)
    train = run(model, variables, batch, 1, train=True)
    want = jax.jit(theirs.apply_for_train)(variables.params, batch, jax.random.key(1))
    np.testing.assert_allclose(train.logits, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.classifier(variables.params, out.features), out.logits, rtol=1e-5, atol=1e-6)
    mapped = jax.vmap(lambda p, b: model.apply(variables._replace(params=p), b, jax.random.key(1), True).logits)
    stacked = jax.tree.map(lambda a: jnp.stack([a, a]), (variables.params, batch))
    assert "conv_general_dilated" not in str(jax.make_jaxpr(mapped)(*stacked))


def test_fedjax_models_that_cannot_be_wrapped():
    theirs = fedjax.models.emnist.create_conv_model(only_digits=True)
    refused("10 outputs, the data 12 classes", from_fedjax, theirs, {"x": images(1, 28)}, 12)
    refused("does not take examples of shape", from_fedjax, theirs, {"x": jnp.zeros((1, 28))})
    haiku = hk.transform(lambda batch: batch["x"])
    refused("has no apply_for_train; give a fedjax.Model", from_fedjax, haiku, {"x": images(1)})
