"""ResNet-20's shortcuts; ResNet-18's norms, pooling and statistics."""

import jax
import jax.numpy as jnp
import numpy as np

from fedwin.models import build
from fedwin.models.networks import resnet
from tests import golden_problems as golden
from tests.models.networks.common import CIFAR, abstract, batch_of, count


def test_wsm_network_has_the_thesis_norms():
    variables = abstract(build("resnet18:variant=wsm", CIFAR, 10))
    want = golden.load("golden_ima_wsm.json")["g11_norm"]["resnet18_mixed_10_classes"]
    assert count(variables.params) == want["trainable"] and count(variables.stats) == want["batch_stats"]
    names = [p[-2].key for p, _ in jax.tree_util.tree_flatten_with_path(variables.params)[0] if p[-1].key == "scale"]
    assert names.count("bn") == 9 and names.count("gn") == 11


def test_statistics_are_returned_in_training_only():
    model = build("resnet18:variant=wsm,norm=bn", CIFAR, 10)
    variables = abstract(model)
    for train in (False, True):
        batch = jax.eval_shape(lambda: {**batch_of(CIFAR, 2), "mask": jnp.ones(2)})
        trace = jax.make_jaxpr(lambda v, b: model.apply(v, b, jax.random.key(0), train).stats)(variables, batch)
        first = len(jax.tree.leaves(variables.params))
        passed = trace.jaxpr.invars[first : first + len(jax.tree.leaves(variables.stats))]
        assert (list(trace.jaxpr.outvars) == list(passed)) is not train


def test_shortcut_a_subsamples_and_pads_channels_on_both_sides():
    block = resnet.Block(8, 2, shortcut="A")
    x = jnp.abs(batch_of((6, 6, 4), 2)["x"])
    params = jax.eval_shape(lambda: block.init(jax.random.key(0), x, False))
    # Without a convolution's part, only the shortcut remains.
    y = block.apply(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), params), x, False)
    np.testing.assert_array_equal(y, jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (2, 2))))
