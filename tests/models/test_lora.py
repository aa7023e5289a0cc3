"""LoRA against NumPy; what is frozen, where it starts, which layers a part has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import losses
from fedwin.core import Variables
from fedwin.models import ADAPTATIONS, build, lora
from tests.models.networks.common import batch_of, drawn, run
from tests.refusals import refused

SHAPE, CLASSES, HIDDEN, RANK, ALPHA, RATE = (3, 2, 1), 4, 5, 2, 3.0, 0.5


@pytest.fixture(scope="module")
def network():
    return build(f"digits_mlp:hidden={HIDDEN}", SHAPE, CLASSES)


def labelled():
    return batch_of(SHAPE, 8) | {"y": jnp.asarray(np.arange(8) % CLASSES), "mask": jnp.ones(8)}


def descended(model, variables, batch, steps=1):
    """Parameters after steps of gradient descent."""
    loss = losses.LOSSES.build("cross_entropy", model)
    gradient = jax.jit(jax.grad(lambda p: loss(p, variables.stats, batch, jax.random.key(0), ())[0]))
    params = variables.params
    for _ in range(steps):
        params = jax.tree.map(lambda p, g: p - RATE * g, params, gradient(params))
    return params


def steps_of_numpy(base, a, b, x, y, steps):
    """Gradient descent on A and B alone, gradients written out; returns A, B and the logits before each step."""
    dense, classifier, logits = base["dense1"], base["classifier"], []
    for _ in range(steps):
        hidden = x @ dense["kernel"] + ALPHA / RANK * (x @ a) @ b + dense["bias"]
        features = np.maximum(hidden, 0)
        f = features @ classifier["kernel"] + classifier["bias"]
        logits.append(f)
        shares = np.exp(f) / np.exp(f).sum(1, keepdims=True)
        towards_hidden = ((shares - np.eye(CLASSES)[y]) / len(x) @ classifier["kernel"].T) * (hidden > 0)
        towards_b = ALPHA / RANK * (x @ a).T @ towards_hidden
        towards_a = ALPHA / RANK * x.T @ towards_hidden @ b.T
        a, b = a - RATE * towards_a, b - RATE * towards_b
    return a, b, logits


def test_logits_and_steps_are_those_of_numpy(network):
    base, batch = drawn(network), labelled()
    base = jax.tree.map(lambda leaf: 5 * leaf, base)
    model = lora(network, base, rank=RANK, alpha=ALPHA)
    variables = Variables(jax.jit(model.init)(jax.random.key(0)).params)
    start = variables.params["dense1"]["kernel"]
    assert jax.tree.map(jnp.shape, variables.params) == {"dense1": {"kernel": {"a": (6, 2), "b": (2, 5)}}}
    assert abs(start["a"]).max() <= 6**-0.5 and start["a"].std() > 0.15
    np.testing.assert_array_equal(start["b"], 0)
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), base.params)
    x, y = np.asarray(batch["x"], np.float64).reshape(8, -1), np.asarray(batch["y"])
    a, b, logits = steps_of_numpy(wide, np.asarray(start["a"], np.float64), np.zeros((2, 5)), x, y, 3)
    after = descended(model, variables, batch, 2)
    np.testing.assert_allclose(run(model, Variables(after), batch).logits, logits[2], rtol=1e-4, atol=1e-5)
    after = descended(model, Variables(after), batch)["dense1"]["kernel"]
    np.testing.assert_allclose(after["a"], a, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(after["b"], b, rtol=1e-4, atol=1e-6)
    assert abs(a - start["a"]).max() > 1e-3


def adapted_layers(model):
    params = jax.eval_shape(model.init, jax.random.key(0)).params
    paths = [[key.key for key in path] for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    return sorted({"/".join(path[:-2]) for path in paths if path[-1] == "a"})


def test_parts():
    network = build("transformer:layers=2,width=4,heads=1,tie=false", (5,), 7)
    base = drawn(network)
    of = lambda part: adapted_layers(lora(network, base, rank=1, part=part))
    layers = ["attention/key", "attention/out", "attention/query", "attention/value", "down", "up"]
    blocks = [f"block{i}/{layer}" for i in (1, 2) for layer in layers]
    assert of("features") == blocks and of("all") == [*blocks, "classifier"] and of("classifier") == ["classifier"]
    assert of("query-value") == [f"block{i}/attention/{layer}" for i in (1, 2) for layer in ("query", "value")]
    assert adapted_layers(lora(network, base, rank=1, part="all", full="classifier")) == blocks
    assert of("block2") == blocks[6:] and of("attention") == [f"block{i}/{x}" for i in (1, 2) for x in layers[:4]]


@pytest.mark.slow
def test_a_classifier_trained_in_full(network):
    base = drawn(network)
    model = lora(network, base, rank=1, full="classifier")
    params = model.init(jax.random.key(0)).params
    assert model.classifier_path == ("classifier",) and lora(network, base, rank=1).classifier_path == ()
    jax.tree.map(np.testing.assert_array_equal, params["classifier"], base.params["classifier"])
    out = run(model, Variables(params), labelled())
    np.testing.assert_allclose(model.classifier(params, out.features), out.logits, rtol=1e-5, atol=1e-6)
    # Without values, the classifier is drawn like the network's own.
    unknown = base.params | {"classifier": jax.eval_shape(lambda: base.params["classifier"])}
    fresh = lora(network, Variables(unknown), rank=1, full="classifier").init(jax.random.key(3)).params["classifier"]
    own = network.init(jax.random.key(3)).params["classifier"]
    jax.tree.map(np.testing.assert_array_equal, fresh, own)
    words = "no 'classifier/bias', which is frozen; take all of its .*full=classifier"
    refused(words, lora, network, Variables(unknown), rank=1)


def test_what_cannot_be_adapted_is_one_line(network):
    words = "part=query has no dense layer .* are classifier, dense1; name some of these"
    refused(words, ADAPTATIONS.build, "lora:part=dense1-query", network, drawn(network))
    refused("rank=0 must be an integer", lora, network, drawn(network), rank=0)
    refused("base is a dict; give fedwin.core.Variables", lora, network, drawn(network).params)
