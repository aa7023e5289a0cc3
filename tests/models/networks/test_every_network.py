"""Every registered network: size, shapes, features, evaluation, precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin.core import Variables
from fedwin.models import MODELS, build
from fedwin.models.networks import plain_cnn
from tests.models.networks.common import CIFAR, GRAY, TEXT, abstract, batch_of, count, drawn, run
from tests.refusals import refused

NETWORKS = [(name, entry) for name, entry in MODELS.entries.items() if entry.builder.__module__.startswith("fedwin.")]
# Text, shape of one example, classes, parameters: each network as in its source, and its variants.
SIZES = [
    *((name, *entry.facts["usual"], int(entry.facts["parameters"].replace(",", ""))) for name, entry in NETWORKS),
    ("logistic", (24, 24, 3), 100, 172_900),
    ("lenet5", CIFAR, 100, 815_332),
    # On 16x16 images: 12x12x16, pooled 6x6, 2x2x32, pooled 1x1: 32 features; with norms of 16 and 32 channels.
    ("lenet5:channels=16-32,dense=64", (16, 16, 3), 10, 16 * 76 + 32 * 401 + 64 * 33 + 10 * 65),
    ("lenet5:channels=16-32,dense=64,groups=2", (16, 16, 3), 10, 16_810 + 2 * (16 + 32)),
    ("resnet20", CIFAR, 100, 275_572),
    ("resnet20:shortcut=B", CIFAR, 100, 278_324),
    ("resnet18:variant=plain", CIFAR, 10, 11_173_962),
    ("resnet18:variant=plain,width=8", CIFAR, 10, 176_402),
    ("resnet18:variant=imagenet", CIFAR, 100, 11_227_812),
    ("resnet18:variant=wsm", CIFAR, 100, 11_224_932),
    ("resnet18:variant=wsm,norm=gn", CIFAR, 10, 11_178_762),
    ("digit5_cnn:variant=B", (28, 28, 3), 10, 806_090),
    ("alexnet:variant=paper", (224, 224, 3), 7, 59_107_399),
    ("mobilenetv2", (128, 128, 3), 1203, 3_764_915),
    ("transformer:positions=rotary,tie=false", TEXT, 90, 111_616),
    ("vit:patch=7,layers=2,pool=mean", GRAY, 62, 108_350),
]


# One small instance of each family that runs for real.
SMALL = [
    ("cnn", (8, 8, 1), 10),
    ("digits_mlp", (8, 8, 1), 10),
    ("emnist_cnn", (12, 12, 1), 10),
    ("lenet5", (16, 16, 3), 10),
    ("digit5_cnn:variant=B", (8, 8, 3), 10),
    ("leaf_lstm", (6,), 80),
    ("transformer:width=8,heads=2", (6,), 80),
    ("vit:patch=2,layers=1,width=8,heads=2", (4, 6, 3), 10),
]


@pytest.mark.parametrize("text,shape,classes,size", SIZES)
def test_parameters_shapes_and_classifier(text, shape, classes, size):
    model = build(text, shape, classes)
    variables = abstract(model)
    assert count(variables.params) == size
    leaves = jax.tree_util.tree_flatten_with_path(variables.params)[0]
    inside = [
        [key.key for key in path[: len(model.classifier_path)]] == list(model.classifier_path) for path, _ in leaves
    ]
    assert 0 < sum(inside) == len(jax.tree.leaves(variables.params["classifier"]))
    assert (sum(inside) < len(leaves)) == ("logistic" not in text)
    with jax.enable_x64(True):
        assert {leaf.dtype.name for leaf in jax.tree.leaves(abstract(build(text, shape, classes)))} == {"float32"}
    batch = jax.eval_shape(lambda: batch_of(shape, 2))
    out = jax.eval_shape(lambda v, b, k: model.apply(v, b, k, True), variables, batch, jax.random.key(0))
    assert out.logits.shape[0] == 2 and out.logits.shape[-1] == classes and out.logits.dtype == jnp.float32
    assert jax.tree.structure(out.stats) == jax.tree.structure(variables.stats)
    again = jax.eval_shape(model.classifier, variables.params, out.features)
    assert again.shape == out.logits.shape


@pytest.mark.parametrize("text,shape,classes", SMALL)
def test_features_classifier_and_evaluation(text, shape, classes):
    model = build(text, shape, classes)
    variables, batch = drawn(model), batch_of(shape)
    out = run(model, variables, batch)
    np.testing.assert_allclose(model.classifier(variables.params, out.features), out.logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(out.logits, run(model, variables, batch, seed=1).logits)
    assert np.isfinite(out.logits).all()
    # An example's logits do not depend on what else is in the batch (GroupNorm sees one example at a time).
    other = {"x": batch["x"].at[1:].set(batch_of(shape, 3, seed=5)["x"][1:])}
    np.testing.assert_allclose(run(model, variables, other).logits[0], out.logits[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", ["leaf_lstm:predict=all,hidden=8", "transformer:width=8,heads=2,tie=false"])
def test_bfloat16_computes_low_and_adds_gradients_in_float32(text):
    # In bfloat16 the sum of 4,000 equal numbers is that of 256.
    batch, found = {"x": jnp.ones((64, 64), int)}, {}
    for dtype in ("float32", "bfloat16"):
        model = build(f"{text},dtype={dtype}", (64,), 10)
        output = lambda params: model.apply(Variables(params, ()), batch, None, False)
        total = lambda params: ((out := output(params)).logits.sum(), out)
        found[dtype], out = jax.jit(jax.grad(total, has_aux=True))(drawn(model).params)
        assert out.features.dtype == dtype and out.logits.dtype == jnp.float32
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.1, atol=3), *found.values())


@pytest.mark.parametrize(
    "text, shape, words",
    [
        ("mlp:hidden=1000000", (8, 8, 1), "mlp would have 1,000,076,000,010 parameters, 3,726 GiB"),
        ("resnet20:groups=3", CIFAR, "resnet20: groups=3 must divide the channels of every .* a divisor of 16"),
        ("leaf_lstm", (8, 8, 1), r"leaf_lstm takes rows of tokens \[length\], not examples of shape \(8, 8, 1\)"),
        ("lenet5", (8, 8, 3), "too small"),
        ("lenet5:channels=16x32", (16, 16, 3), "lenet5: channels=16x32 must be widths >= 1 joined by '-'"),
        ("transformer:width=10,heads=4", TEXT, "transformer: heads=4 must divide the width, 10"),
        ("transformer:width=12,heads=4,positions=rotary", TEXT, "give 3 per head; choose an even number"),
        ("vit:patch=3", (4, 6, 3), "vit: patch=3 must divide the height and the width of the 4x6 images"),
    ],
)
def test_an_impossible_network_is_refused_in_one_line(text, shape, words):
    refused(words, build, text, shape, 10)


@pytest.mark.parametrize("text,shape", [("emnist_cnn", (12, 12, 1)), ("pfl_cnn", (12, 12, 3))])
def test_dropout_differs_by_key_in_training_only(text, shape):
    model = build(text, shape, 10)
    variables, batch = drawn(model), batch_of(shape)
    a, b, c = (run(model, variables, batch, seed, train=True).logits for seed in (0, 0, 1))
    assert (a == b).all() and (a != c).any()


def test_dropout_rates_are_a_quarter_and_a_half(monkeypatch):
    rates = []
    monkeypatch.setattr(plain_cnn, "dropout", lambda x, rate, key, train: rates.append((rate, train)) or x)
    model = build("emnist_cnn", (12, 12, 1), 10)
    jax.eval_shape(lambda v: model.apply(v, batch_of((12, 12, 1)), jax.random.key(0), True), abstract(model))
    assert rates[-2:] == [(0.25, True), (0.5, True)]
