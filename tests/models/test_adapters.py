"""Foreign networks: flax, haiku, FedJAX, and the rewriting of their convolutions."""

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from fedwin.errors import UserError
from fedwin.models import from_fedjax, from_flax, from_haiku
from fedwin.models.convolution import lower_convolutions

NUMBERS = ("NHWC", "HWIO", "NHWC")


def images(size=3, side=8, channels=1, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal((size, side, side, channels)), jnp.float32)


def convolution(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NUMBERS)


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
    out = model.apply(variables, {"x": x}, jax.random.key(1), False)
    theirs = Plain().apply({"params": variables.params, "batch_stats": variables.stats}, x, False)
    np.testing.assert_allclose(out.logits, theirs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.classifier(variables.params, out.features), out.logits, rtol=1e-5, atol=1e-6)
    a, b = (model.apply(variables, {"x": x}, jax.random.key(k), True) for k in (1, 2))
    assert (a.logits != b.logits).any()
    assert (jax.tree.leaves(a.stats)[0] != jax.tree.leaves(variables.stats)[0]).any()
    with pytest.raises(UserError, match="3 outputs, the data 5 classes"):
        from_flax(Plain(), (8, 8, 1), 5)


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


def test_fedjax_model_equals_itself():
    theirs = fedjax.models.emnist.create_conv_model(only_digits=True)
    model = from_fedjax(theirs, {"x": images(1, 28)})
    variables, batch = jax.jit(model.init)(jax.random.key(0)), {"x": images(2, 28)}
    apply = jax.jit(model.apply, static_argnums=3)
    out = apply(variables, batch, jax.random.key(1), False)
    np.testing.assert_allclose(
        out.logits, jax.jit(theirs.apply_for_eval)(variables.params, batch), rtol=1e-4, atol=1e-5
    )
    train = apply(variables, batch, jax.random.key(1), True)
    want = jax.jit(theirs.apply_for_train)(variables.params, batch, jax.random.key(1))
    np.testing.assert_allclose(train.logits, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.classifier(variables.params, out.features), out.logits, rtol=1e-5, atol=1e-6)
    mapped = jax.vmap(lambda p, b: model.apply(variables._replace(params=p), b, jax.random.key(1), True).logits)
    stacked = jax.tree.map(lambda a: jnp.stack([a, a]), (variables.params, batch))
    assert "conv_general_dilated" not in str(jax.make_jaxpr(mapped)(*stacked))


@pytest.mark.parametrize("name", ["jit", "remat", "custom_jvp", "custom_vjp", "scan", "cond", "while", "relu kept"])
def test_rewriting_reaches_inside(name):
    x, w = images(2, 6, 2), jnp.asarray(np.random.default_rng(1).standard_normal((3, 3, 2, 2)), jnp.float32)
    jvp_rule = jax.custom_jvp(convolution)
    jvp_rule.defjvp(lambda p, t: jax.jvp(convolution, p, t))
    vjp_rule = jax.custom_vjp(convolution)
    vjp_rule.defvjp(lambda x, w: jax.vjp(convolution, x, w), lambda pull, g: pull(g))
    function = {
        "jit": jax.jit(convolution),
        "remat": jax.checkpoint(convolution),
        "custom_jvp": jvp_rule,
        "custom_vjp": vjp_rule,
        "scan": lambda x, w: lax.scan(lambda c, _: (jnp.tanh(convolution(c, w)), None), x, None, length=2)[0],
        "cond": lambda x, w: lax.cond(x.sum() > 0, convolution, lambda x, w: x, x, w),
        "while": lambda x, w: lax.fori_loop(0, jnp.int32(2), lambda i, c: jnp.tanh(convolution(c, w)), x),
        "relu kept": lambda x, w: jax.nn.relu(convolution(x, w)),
    }[name]
    lowered = lower_convolutions(function)
    np.testing.assert_allclose(lowered(x, w), function(x, w), rtol=1e-4, atol=1e-5)
    batched = lambda f: jax.vmap(f)(jnp.stack([x, x]), jnp.stack([w, 2 * w]))
    assert "conv_general_dilated" not in str(jax.make_jaxpr(lambda: batched(lowered))())
    if name != "while":
        gradient = lambda f: jax.grad(lambda w: jnp.sin(f(x, w)).sum())(w)
        np.testing.assert_allclose(gradient(lowered), gradient(function), rtol=1e-3, atol=1e-3)


def test_nothing_to_rewrite():
    assert lower_convolutions(lambda a: {"b": jnp.tanh(a)})(jnp.ones(3))["b"].shape == (3,)
