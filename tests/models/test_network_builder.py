"""Checks of network sizes and input shapes."""

import jax
import pytest

from fedwin.errors import UserError
from fedwin.models import MODELS, build


@pytest.mark.parametrize(
    "text, shape, words",
    [
        ("digits_mlp:hidden=0", (8, 8, 1), "digits_mlp: hidden=0 must be an integer >= 1"),
        ("mlp:hidden=-3", (8, 8, 1), "mlp: hidden=-3 must be an integer >= 1"),
        ("mlp:layers=0", (8, 8, 1), "mlp: layers=0 must be an integer >= 1"),
        ("mlp:layers=1000000000", (8, 8, 1), "layers=1000000000 must be at most 1000; layers are compiled one by one"),
        ("mlp:hidden=10000000", (8, 8, 1), "hidden=10000000 must be at most 1048576"),
        ("mlp:hidden=1000000000000", (8, 8, 1), "hidden=1000000000000 must lie within 2147483647"),
        ("mlp:hidden=1000000", (8, 8, 1), "mlp would have 1,000,076,000,010 parameters, 3,726 GiB"),
        ("emnist_dense:hidden=0", (8, 8, 1), "emnist_dense: hidden=0 must be"),
        ("mcmahan_cnn:width=0", (28, 28, 1), "mcmahan_cnn: width=0 must be"),
        ("leaf_lstm:hidden=0", (80,), "leaf_lstm: hidden=0 must be"),
        ("resnet20:groups=0", (32, 32, 3), "resnet20: groups=0 must be"),
        ("resnet20:groups=3", (32, 32, 3), "resnet20: groups=3 must divide the channels of every .* a divisor of 16"),
        ("resnet18:groups=128", (32, 32, 3), "a divisor of 64"),
        ("vgg11:groups=128", (32, 32, 3), "a divisor of 64"),
        ("alexnet:groups=7", (224, 224, 3), "a divisor of 64"),
        ("digit5_cnn:groups=5", (28, 28, 3), "a divisor of 64"),
        ("mobilenetv2:groups=16", (32, 32, 3), "a divisor of 8"),
        ("mlp:dtype=float33", (8, 8, 1), "dtype=float33 must be one of float32, bfloat16, float64"),
        ("lenet5:dtype=int32", (32, 32, 3), "dtype=int32 must be one of"),
        ("lenet5", (80,), r"lenet5 takes images \[height, width, channels\], not examples of shape \(80,\)"),
        ("leaf_lstm", (8, 8, 1), r"leaf_lstm takes rows of tokens \[length\], not examples of shape \(8, 8, 1\)"),
        ("mlp", (0, 8, 1), r"not examples of shape \(0, 8, 1\)"),
    ],
)
def test_what_cannot_be_built_is_one_line(text, shape, words):
    with pytest.raises(UserError, match=words) as caught:
        build(text, shape, 10)
    assert "\n" not in str(caught.value)


def test_a_model_has_classes():
    with pytest.raises(UserError, match="num_classes=0 must be an integer >= 1"):
        build("mlp", (8, 8, 1), 0)


@pytest.mark.parametrize("name", MODELS)
def test_networks_know_their_number_of_parameters(name):
    facts = MODELS.entries[name].facts
    variables = jax.eval_shape(build(name, *facts["usual"]).init, jax.random.key(0))
    assert f"{sum(leaf.size for leaf in jax.tree.leaves(variables.params)):,}" == facts["parameters"]


def test_another_name_of_a_network():
    assert MODELS["cnn"] is MODELS["digits_cnn"]
