"""Models of FedJAX as fedwin models."""

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin.errors import UserError
from fedwin.models import from_fedjax
from tests.models.networks.common import images
from tests.refusals import refused


@pytest.mark.slow
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


def test_models_that_cannot_be_wrapped():
    theirs = fedjax.models.emnist.create_conv_model(only_digits=True)
    refused("10 outputs, the data 12 classes", from_fedjax, theirs, {"x": images(1, 28)}, 12)
    refused("does not take examples of shape", from_fedjax, theirs, {"x": jnp.zeros((1, 28))})
    with pytest.raises(UserError, match="has no apply_for_train; give a fedjax.Model"):
        from_fedjax(hk.transform(lambda batch: batch["x"]), {"x": images(1)})
