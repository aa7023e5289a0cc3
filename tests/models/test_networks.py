"""Every network by name: size, shapes, features, dropout, normalisation."""

import functools
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import losses
from fedwin.core import Variables
from fedwin.engine import evaluate
from fedwin.errors import UserError
from fedwin.models import MODELS, build
from fedwin.models.layers import BatchNorm, GroupNorm, dropout
from fedwin.models.networks import mobilenet

CIFAR, GREY, TEXT = (32, 32, 3), (28, 28, 1), (80,)
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
]


def count(tree) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def abstract(model) -> Variables:
    return jax.eval_shape(model.init, jax.random.key(0))


def drawn(model) -> Variables:
    """Variables of the right shapes from NumPy: compiling an initialiser takes longer than the tests themselves."""
    generator = np.random.default_rng(0)
    draw = lambda leaf: jnp.asarray(generator.standard_normal(leaf.shape) * 0.1, leaf.dtype)
    return jax.tree.map(draw, abstract(model))


def batch_of(shape, size=3, seed=0, vocab=80):
    generator = np.random.default_rng(seed)
    if len(shape) == 1:
        return {"x": jnp.asarray(generator.integers(0, vocab, (size, *shape)), jnp.int32)}
    return {"x": jnp.asarray(generator.standard_normal((size, *shape)), jnp.float32)}


def run(model, variables, batch, seed=0, train=False):
    return jax.jit(model.apply, static_argnums=3)(variables, batch, jax.random.key(seed), train)


@pytest.mark.parametrize("text,shape,classes,size", SIZES)
def test_parameters_shapes_and_classifier(text, shape, classes, size):
    model = build(text, shape, classes)
    variables = abstract(model)
    assert count(variables.params) == size
    leaves = jax.tree_util.tree_flatten_with_path(variables.params)[0]
    inside = [
        [key.key for key in path[: len(model.classifier_path)]] == list(model.classifier_path) for path, _ in leaves
    ]
    assert 0 < sum(inside) == len(jax.tree.leaves(variables.params["classifier"])) < len(leaves) or "logistic" in text
    if (text, shape) in SEEN:  # another number of classes changes the count alone
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


@pytest.mark.parametrize("text,shape", [("emnist_cnn", (12, 12, 1)), ("pfl_cnn", (12, 12, 3))])
def test_dropout_differs_by_key_in_training_only(text, shape):
    model = build(text, shape, 10)
    variables, batch = drawn(model), batch_of(shape)
    a, b, c = (run(model, variables, batch, seed, train=True).logits for seed in (0, 0, 1))
    assert (a == b).all() and (a != c).any()


@pytest.mark.parametrize("rate", [0.25, 0.5, 0.3])
def test_dropout_keeps_the_mean(rate):
    y = dropout(jnp.ones(200_000), rate, jax.random.key(0), True)
    assert abs(float((y == 0).mean()) - rate) < 0.005
    assert abs(float(y.mean()) - 1) < 0.01


def test_resnet20_shortcut_a_has_no_parameters():
    params = abstract(build("resnet20", CIFAR, 10)).params
    assert not any("shortcut" in key for block in params.values() for key in block)
    assert any(
        "shortcut" in key
        for block in abstract(build("resnet20:shortcut=B", CIFAR, 10)).params.values()
        for key in block
    )


def test_wsm_pool_ignores_row_and_column_three():
    from fedwin.models.convolution import avg_pool

    x = jnp.arange(2 * 4 * 4 * 3, dtype=jnp.float32).reshape(2, 4, 4, 3)
    pooled = avg_pool(x, (3, 3), (2, 2))
    assert pooled.shape == (2, 1, 1, 3)
    np.testing.assert_allclose(pooled[:, 0, 0], x[:, :3, :3].mean((1, 2)), rtol=1e-6)
    np.testing.assert_array_equal(pooled, avg_pool(x.at[:, 3].set(-9).at[:, :, 3].set(7), (3, 3), (2, 2)))


def test_wsm_network_has_the_thesis_norms():
    golden = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "golden_ima_wsm.json").read_text())["g11_norm"]
    variables = abstract(build("resnet18:variant=wsm", CIFAR, 10))
    want = golden["resnet18_mixed_10_classes"]
    assert count(variables.params) == want["trainable"] and count(variables.stats) == want["batch_stats"]
    names = [p[-2].key for p, _ in jax.tree_util.tree_flatten_with_path(variables.params)[0] if p[-1].key == "scale"]
    assert names.count("bn") == 9 and names.count("gn") == 11


# BOS 1, EOS 2: a short sentence, one that EOS just fits in, one that is cut, and one word.
SENTENCES = np.array([[1, 5, 6, 7, 0, 0], [1, 5, 6, 7, 8, 9], [1, 5, 6, 7, 8, 9], [1, 5, 0, 0, 0, 0]], np.int32)
NEXT = np.array([[5, 6, 7, 2, 0, 0], [5, 6, 7, 8, 9, 2], [5, 6, 7, 8, 9, 4], [5, 2, 0, 0, 0, 0]], np.int32)


@pytest.mark.parametrize("name", ["stackoverflow_lstm", "shakespeare_lstm"])
def test_the_last_word_of_a_padded_sentence_is_predicted_from_what_is_before_it(name):
    one, every = build(f"{name}:predict=last", (6,), 12), build(f"{name}:predict=all", (6,), 12)
    variables = drawn(one)
    batch = {"x": SENTENCES, "y": NEXT, "mask": np.ones(4, np.float32)}
    last, full = (run(model, variables, batch).logits for model in (one, every))
    places = np.array([2, 5, 5, 0])
    np.testing.assert_array_equal(losses.last_target(SENTENCES), places)
    np.testing.assert_array_equal(losses.last_target(NEXT), places)  # inputs and labels say the same
    np.testing.assert_allclose(last, full[np.arange(4), places], rtol=1e-5, atol=1e-6)
    _, targets = losses.aligned(last, NEXT)
    assert targets[:, 0].tolist() == [7, 2, 4, 5]
    expected = np.mean(losses.nll(last, np.array([7, 2, 4, 5])))
    loss = losses.LOSSES.build("cross_entropy", one)(variables.params, (), batch, jax.random.key(1), ())[0]
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    found = evaluate.sequence({"accuracy": ((0, 2, 11), (0, 1, 2, 11))})(jax.nn.one_hot(targets[:, 0], 12), batch)
    assert float(found["accuracy"].value) == 1 and float(found["accuracy"].weight) == 3  # EOS is not counted


def test_lstm_predicts_last_or_all():
    shapes = {}
    for predict in ("last", "all"):
        model = build(f"leaf_lstm:predict={predict}", (7,), 80)
        variables = drawn(model)
        shapes[predict] = run(model, variables, batch_of((7,), 2)).logits
    assert shapes["last"].shape == (2, 80) and shapes["all"].shape == (2, 7, 80)
    np.testing.assert_allclose(shapes["all"][:, -1], shapes["last"], rtol=1e-4, atol=1e-5)


def test_group_norm_equals_flax():
    from flax import linen as nn

    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 5, 4, 6)) * 3 + 1, jnp.float32)
    ours, theirs = GroupNorm(2), nn.GroupNorm(2, epsilon=1e-5)
    variables = theirs.init(jax.random.key(0), x)
    f = lambda layer: jax.jit(jax.value_and_grad(lambda v, x: jnp.sin(layer.apply(v, x)).sum(), (0, 1)))(variables, x)
    for a, b in zip(jax.tree.leaves(f(ours)), jax.tree.leaves(f(theirs))):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="4 groups do not divide 6"):
        GroupNorm(4).init(jax.random.key(0), x)


def batch_norm(x, mask=None, train=True, stats=None):
    layer = BatchNorm()
    variables = layer.init(jax.random.key(0), x, True)
    if stats is not None:
        variables = {**variables, "batch_stats": stats}
    return layer.apply(variables, x, train, mask, mutable=["batch_stats"])


def test_golden_batch_norm_running_statistics():
    golden = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "golden_ima_wsm.json").read_text())["g11_norm"]
    _, updated = batch_norm(jnp.asarray(golden["batch"])[:, None])
    np.testing.assert_allclose(updated["batch_stats"]["mean"], golden["running_mean_after"], rtol=1e-6)
    np.testing.assert_allclose(updated["batch_stats"]["var"], golden["running_var_after_unbiased"], rtol=1e-6)


def test_batch_norm_ignores_padded_rows():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 3, 3, 4)), jnp.float32)
    padded = x.at[3:].set(1e3)
    y, updated = batch_norm(padded, mask=jnp.array([1.0, 1, 1, 0, 0]))
    want, wanted = batch_norm(x[:3])
    np.testing.assert_allclose(y[:3], want, rtol=1e-5, atol=1e-5)
    for a, b in zip(jax.tree.leaves(updated), jax.tree.leaves(wanted)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    _, untouched = batch_norm(padded, mask=jnp.zeros(5))
    np.testing.assert_array_equal(untouched["batch_stats"]["mean"], jnp.zeros(4))
    np.testing.assert_array_equal(untouched["batch_stats"]["var"], jnp.ones(4))


def test_batch_norm_evaluates_with_running_statistics():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 4)), jnp.float32)
    stats = {"mean": jnp.arange(4.0), "var": jnp.full(4, 4.0)}
    y, updated = batch_norm(x, train=False, stats=stats)
    np.testing.assert_allclose(y, (x - jnp.arange(4.0)) / np.sqrt(4 + 1e-5), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(updated["batch_stats"]["mean"], stats["mean"])


def test_statistics_are_returned_in_training_only():
    model = build("resnet18:variant=wsm,norm=bn", CIFAR, 10)
    variables = abstract(model)
    for train in (False, True):
        batch = jax.eval_shape(lambda: {**batch_of(CIFAR, 2), "mask": jnp.ones(2)})
        trace = jax.make_jaxpr(lambda v, b: model.apply(v, b, jax.random.key(0), train).stats)(variables, batch)
        first = len(jax.tree.leaves(variables.params))
        passed = trace.jaxpr.invars[first : first + len(jax.tree.leaves(variables.stats))]
        assert (list(trace.jaxpr.outvars) == list(passed)) is not train


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


def test_mobilenet_block_is_depthwise_and_keeps_examples_apart():
    block = mobilenet.InvertedResidual(2, 8, 1, 4)
    x = batch_of((5, 5, 8), 2)["x"]
    variables = jax.jit(block.init)(jax.random.key(0), x)
    assert variables["params"]["depthwise"]["kernel"].shape == (3, 3, 1, 16)
    apply = jax.jit(block.apply)
    y = apply(variables, x)
    zeroed = {
        "params": {
            **variables["params"],
            "project_norm": jax.tree.map(jnp.zeros_like, variables["params"]["project_norm"]),
        }
    }
    np.testing.assert_array_equal(apply(zeroed, x), x)
    np.testing.assert_allclose(apply(variables, x.at[1].set(0))[0], y[0], rtol=1e-5, atol=1e-6)


def test_mobilenet_reads_convolution_weights(tmp_path):
    scratch = build("mobilenetv2", (32, 32, 3), 5)
    assert scratch.name.endswith("from_scratch")
    shapes = abstract(scratch).params
    names = mobilenet.conv_names(shapes)
    assert len(names) == 52
    leaf = lambda params, name: functools.reduce(lambda tree, key: tree[key], name, params)
    generator = np.random.default_rng(0)
    kernels = {name: generator.standard_normal(leaf(shapes, name).shape).astype(np.float32) for name in names}
    ours, torch_like = tmp_path / "ours.npz", tmp_path / "torch.npz"
    np.savez(ours, **{"/".join(name): kernel for name, kernel in kernels.items()})
    as_torch = {f"features.{i}": kernel.transpose(3, 2, 0, 1) for i, kernel in enumerate(kernels.values())}
    np.savez(torch_like, **as_torch, bias=np.zeros(3))
    zeros = jax.tree.map(lambda s: np.zeros(s.shape, np.float32), shapes)
    for file in (ours, torch_like):
        assert build(f"mobilenetv2:weights={file}", (32, 32, 3), 5).name == "mobilenetv2"
        params = mobilenet.with_kernels(zeros, mobilenet.read_weights(str(file), shapes))
        assert all((leaf(params, name) == kernel).all() for name, kernel in kernels.items())
        assert not params["classifier"]["kernel"].any()
    np.savez(ours, **{"/".join(name): kernel for name, kernel in list(kernels.items())[:-1]})
    with pytest.raises(UserError, match="last/kernel' is missing"):
        build(f"mobilenetv2:weights={ours}", (32, 32, 3), 5)
    ours.write_bytes(b"junk")
    with pytest.raises(UserError, match="no readable .npz"):
        build(f"mobilenetv2:weights={ours}", (32, 32, 3), 5)
