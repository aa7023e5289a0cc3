"""Every registered network: size, shapes, features, evaluation, precision."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin.errors import UserError
from fedwin.models import MODELS, build
from tests.models.networks.common import CIFAR, GREY, TEXT, abstract, batch_of, count, drawn, run

# text, shape of one example, classes, parameters
SIZES = [
    ("cnn", (8, 8, 1), 10, 13_706),
    ("digits_cnn", (8, 8, 1), 10, 13_706),
    ("digits_mlp", (8, 8, 1), 10, 4_810),
    ("mlp", GREY, 10, 199_210),
    ("pfl_cnn", CIFAR, 10, 1_626_442),
    ("emnist_cnn", GREY, 62, 1_206_590),
    ("emnist_cnn", GREY, 10, 1_199_882),
    ("emnist_dense", GREY, 62, 209_662),
    ("emnist_dense", GREY, 10, 199_210),
    ("logistic", GREY, 62, 48_670),
    ("logistic", GREY, 10, 7_850),
    ("logistic", (24, 24, 3), 100, 172_900),
    ("lenet5", CIFAR, 10, 797_962),
    ("lenet5", CIFAR, 100, 815_332),
    ("mcmahan_cnn", CIFAR, 10, 772_682),
    ("mcmahan_cnn", GREY, 10, 274_026),
    ("resnet20", CIFAR, 10, 269_722),
    ("resnet20", CIFAR, 100, 275_572),
    ("resnet20:shortcut=B", CIFAR, 10, 272_474),
    ("resnet20:shortcut=B", CIFAR, 100, 278_324),
    ("resnet18:variant=plain", CIFAR, 10, 11_173_962),
    ("resnet18:variant=plain", CIFAR, 62, 11_200_638),
    ("resnet18:variant=plain", CIFAR, 100, 11_220_132),
    ("resnet18", CIFAR, 10, 11_235_786),
    ("resnet18:variant=plain,width=8", CIFAR, 10, 176_402),
    ("resnet18:variant=imagenet", CIFAR, 100, 11_227_812),
    ("resnet18:groups=32", CIFAR, 100, 11_247_396),
    ("resnet18:variant=wsm", CIFAR, 10, 11_178_762),
    ("resnet18:variant=wsm", CIFAR, 100, 11_224_932),
    ("resnet18:variant=wsm", CIFAR, 62, 11_205_438),
    ("resnet18:variant=wsm", GREY, 62, 11_204_286),
    ("resnet18:variant=wsm,norm=bn", CIFAR, 10, 11_178_762),
    ("resnet18:variant=wsm,norm=gn", CIFAR, 10, 11_178_762),
    ("vgg11", CIFAR, 10, 9_292_938),
    ("vgg11", CIFAR, 100, 9_304_548),
    ("digit5_cnn", (28, 28, 3), 10, 13_427_786),
    ("digit5_cnn:variant=B", (28, 28, 3), 10, 806_090),
    ("alexnet", (224, 224, 3), 7, 12_438_599),
    ("alexnet:variant=paper", (224, 224, 3), 7, 59_107_399),
    ("mobilenetv2", (224, 224, 3), 2028, 4_821_740),
    ("mobilenetv2", (128, 128, 3), 1203, 3_764_915),
    ("mobilenetv2", (64, 64, 3), 1000, 3_504_872),
    ("shakespeare_lstm", TEXT, 90, 820_522),
    ("leaf_lstm", TEXT, 80, 132_720),
    ("stackoverflow_lstm", (20,), 10_004, 4_050_748),
    ("transformer", TEXT, 90, 110_976),
    ("transformer:positions=rotary,tie=false", TEXT, 90, 111_616),
    ("vit", CIFAR, 10, 208_074),
    ("vit:patch=7,layers=2,pool=mean", GREY, 62, 108_350),
]


SEEN = set()


# One small instance of each family that runs for real.
SMALL = [
    ("cnn", (8, 8, 1), 10),
    ("digits_mlp", (8, 8, 1), 10),
    ("emnist_cnn", (12, 12, 1), 10),
    ("lenet5", (16, 16, 3), 10),
    ("resnet20", (8, 8, 3), 10),
    ("digit5_cnn:variant=B", (8, 8, 3), 10),
    ("leaf_lstm", (6,), 80),
    ("leaf_lstm:predict=all", (6,), 80),
    ("transformer:width=8,heads=2", (6,), 80),
    ("vit:patch=2,layers=1,width=8,heads=2", (4, 6, 3), 10),
]


# Of a network that is there already, another number of classes changes the count alone; one MobileNet is quick enough.
PLACES = [(text, shape) for text, shape, *_ in SIZES]
REPEATED = {number for number, place in enumerate(PLACES) if place in PLACES[:number]}
REPEATED |= {number for number, (text, shape) in enumerate(PLACES) if text == "mobilenetv2" and shape[0] > 64}


@pytest.mark.parametrize(
    "text,shape,classes,size",
    [pytest.param(*size, marks=[pytest.mark.slow] * (number in REPEATED)) for number, size in enumerate(SIZES)],
)
def test_parameters_shapes_and_classifier(text, shape, classes, size):
    model = build(text, shape, classes)
    variables = abstract(model)
    assert count(variables.params) == size
    leaves = jax.tree_util.tree_flatten_with_path(variables.params)[0]
    inside = [
        [key.key for key in path[: len(model.classifier_path)]] == list(model.classifier_path) for path, _ in leaves
    ]
    assert 0 < sum(inside) == len(jax.tree.leaves(variables.params["classifier"])) < len(leaves) or "logistic" in text
    if (text, shape) in SEEN:
        return
    SEEN.add((text, shape))
    batch = jax.eval_shape(lambda: batch_of(shape, 2))
    out = jax.eval_shape(lambda v, b, k: model.apply(v, b, k, True), variables, batch, jax.random.key(0))
    assert out.logits.shape[0] == 2 and out.logits.shape[-1] == classes and out.logits.dtype == jnp.float32
    assert jax.tree.structure(out.stats) == jax.tree.structure(variables.stats)
    again = jax.eval_shape(model.classifier, variables.params, out.features)
    assert again.shape == out.logits.shape


def test_every_name_is_counted():
    assert {text.partition(":")[0] for text, *_ in SIZES} == set(MODELS)


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


def test_initialisation_depends_on_the_key_alone():
    model = build("digits_mlp", (8, 8, 1), 10)
    a, b, c = (jax.tree.leaves(model.init(jax.random.key(k)).params) for k in (0, 0, 1))
    assert all((x == y).all() for x, y in zip(a, b))
    assert any((x != y).any() for x, y in zip(a, c))


def test_bfloat16_computes_low_and_keeps_parameters():
    model = build("cnn:dtype=bfloat16", (8, 8, 1), 10)
    variables, batch = drawn(model), batch_of((8, 8, 1))
    out = run(model, variables, batch)
    assert out.features.dtype == jnp.bfloat16 and out.logits.dtype == jnp.float32
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(variables))
    exact = run(build("cnn", (8, 8, 1), 10), variables, batch).logits
    np.testing.assert_allclose(out.logits, exact, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    "text,shape,words",
    [
        ("lenet", CIFAR, "lenet5"),
        ("resnet20:shortcut=C", CIFAR, "shortcut must be A or B"),
        ("resnet18:variant=wsm", (64, 64, 3), "4x4"),
        ("resnet18:norm=ln", CIFAR, "norm must be one of"),
        ("alexnet:variant=x", (224, 224, 3), "code or paper"),
        ("leaf_lstm:predict=first", TEXT, "all or last"),
        ("mobilenetv2:weights=/nowhere.npz", (32, 32, 3), "does not exist"),
        ("lenet5", (8, 8, 3), "too small"),
        ("vgg11", (16, 16, 3), "too small"),
    ],
)
def test_bad_choices_are_user_errors(text, shape, words):
    with pytest.raises(UserError, match=words):
        build(text, shape, 10)


def test_lenet5_with_other_widths():
    """On 16x16 images: 12x12x16, pooled 6x6, 2x2x32, pooled 1x1: 32 features."""
    model = build("lenet5:channels=16-32,dense=64", (16, 16, 3), 10)
    shapes = jax.eval_shape(model.init, jax.random.key(0)).params
    sizes = {name: sum(math.prod(x.shape) for x in jax.tree.leaves(layer)) for name, layer in shapes.items()}
    assert sizes == {
        "conv1": 5 * 5 * 3 * 16 + 16,
        "conv2": 5 * 5 * 16 * 32 + 32,
        "dense1": 32 * 64 + 64,
        "classifier": 650,
    }
    normed = build("lenet5:channels=16-32,dense=64,groups=2", (16, 16, 3), 10)
    shapes = jax.eval_shape(normed.init, jax.random.key(0)).params
    assert sum(math.prod(x.shape) for x in jax.tree.leaves(shapes)) == sum(sizes.values()) + 2 * (16 + 32)
    with pytest.raises(UserError, match="lenet5: groups=3 must divide"):
        build("lenet5:channels=16-32,groups=3", (16, 16, 3), 10)
    with pytest.raises(UserError, match="lenet5: channels=16x32 must be widths >= 1 joined by '-'"):
        build("lenet5:channels=16x32", (16, 16, 3), 10)
