"""Parameters from files: PyTorch's layouts, names, shapes and types."""

import json
import math
import pathlib
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import models, tree
from fedwin.core import Variables
from fedwin.models import interchange, layers
from fedwin.runs.checkpoint import named_leaves
from tests import golden_problems as golden
from tests.models.networks.common import run
from tests.refusals import refused

# Case -> {shapes, logits}: the shapes of a state dict in its order, and PyTorch's logits [2, 10].
GOLDEN = golden.load("torch_logits.json")
# Case -> (network, shape of one example, map of names).
SEQUENTIAL = {"0": "stem", "1": "stem_norm", "14": "classifier"} | {
    str(3 + 3 * stage + block): f"stage{stage + 1}_block{block + 1}" for stage in range(3) for block in range(3)
}
CASES = {
    "lenet5": ("lenet5", (32, 32, 3), {"0": "conv1", "3": "conv2", "7": "dense1", "9": "dense2", "11": "classifier"}),
    "resnet20": ("resnet20", (32, 32, 3), SEQUENTIAL),
    "batch_norm": ("resnet18:variant=plain,norm=bn,width=4", (16, 16, 3), {"linear": "classifier"}),
}


def pseudo_random(count: int, salt: int) -> np.ndarray:
    """Returns numbers in [-1, 1) that any program can compute: a multiplicative hash of 0 .. count - 1."""
    hashed = (np.arange(1, count + 1, dtype=np.uint64) * 2654435761 + salt * 40503) % 2**32
    return hashed.astype(np.float64) / 2**31 - 1


def state_of(shapes: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """Returns name -> values of a state dict with these shapes; layers keep the size of their input."""
    state = {}
    for salt, (name, shape) in enumerate(shapes.items()):
        draw = pseudo_random(math.prod(shape), salt).reshape(shape)
        if name.endswith("num_batches_tracked"):
            state[name] = np.zeros(shape, np.int64)
        elif len(shape) > 1:
            state[name] = (draw * (6 / math.prod(shape[1:])) ** 0.5).astype(np.float32)
        elif name.endswith(("running_var", "weight")):
            state[name] = (1 + 0.5 * draw).astype(np.float32)
        else:
            state[name] = (0.3 * draw).astype(np.float32)
    return state


def examples(shape: tuple[int, ...]) -> np.ndarray:
    """Returns two images [2, H, W, C]."""
    return pseudo_random(2 * math.prod(shape), 999).reshape(2, *shape).astype(np.float32)


def shapes_of(model):
    return tree.named(jax.eval_shape(model.init, jax.random.key(0)))


def load(path, model, shape, names=None, layout="auto"):
    """Reads a file with a map of names, or the text of one, that is written beside it."""
    own, map = shapes_of(model), path.with_suffix(".json")
    if names is not None:
        map.write_text(names if isinstance(names, str) else json.dumps(names))
    return interchange.load(path, model, own, own, shape, jnp.float32, names and str(map), layout)


def loaded(path, model, shape, names=None) -> Variables:
    """Returns the model's Variables from a file that has all of them."""
    leaves = load(path, model, shape, names).leaves
    own = jax.eval_shape(model.init, jax.random.key(0))
    return jax.tree.unflatten(jax.tree.structure(own), [jnp.asarray(leaves[name]) for name in tree.named(own)])


def save(path, arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("case", ["lenet5", "resnet20", pytest.param("batch_norm", marks=pytest.mark.slow)])
def test_a_state_dict_gives_pytorchs_logits(case, tmp_path):
    """The logits were computed by torch 2.13."""
    name, shape, names = CASES[case]
    known = GOLDEN[case]
    path = save(tmp_path / "model.npz", state_of(known["shapes"]))
    model = models.build(name, shape, 10)
    variables = loaded(path, model, shape, names)
    found = run(model, variables, {"x": examples(shape)}).logits
    np.testing.assert_allclose(found, known["logits"], atol=1e-5)
    note = load(path, model, shape, names).note
    assert ("dense1 CHW -> HWC" in note) == (case == "lenet5") and "OIHW -> HWIO" in note
    # The reverse: the very state dict, under the network's own names.
    state, source = convert(model, named_leaves(variables), shape)
    for name, value in state_of(known["shapes"]).items():
        module, _, leaf = name.rpartition(".")
        own = next((names[m] + module[len(m) :] for m in names if f"{module}.".startswith(f"{m}.")), module)
        np.testing.assert_array_equal(state[f"{own}.{leaf}"], value, err_msg=name)
    assert len(state) == len(known["shapes"]) and compile(source, "model.py", "exec")


def convert(model, arrays, shape, path=pathlib.Path("model.npz")):
    about = {"input_shape": shape, "input_dtype": "float32", "mean": [0.5], "std": [0.25]}
    return interchange.convert(model, arrays, about, path)


@pytest.mark.parametrize(
    "name, shape, lines",
    [
        ("emnist_cnn", (12, 12, 1), ["conv2=nn.Conv2d(32, 64, 3, 1, 'valid')", "=nn.Dropout(0.25)", "=nn.Flatten()"]),
        ("digit5_cnn:variant=B", (8, 8, 3), ["Conv2d(3, 64, 5, 1, 2)", "nn.GroupNorm(2, 128)", "=nn.MaxPool2d(2, 2)"]),
        ("resnet18:variant=wsm,width=4", (25, 25, 3), ["stem_norm=nn.BatchNorm2d(4)", "=nn.AvgPool2d(3, 2)"]),
        ("digits_mlp:hidden=3", (4, 4, 2), ["dense1=nn.Linear(32, 3)", "classifier=nn.Linear(3, 10)", "[B, 4, 4, 2]"]),
    ],
)
def test_an_exported_state_dict_is_read_again_without_a_map(name, shape, lines, tmp_path):
    model, random = models.build(name, shape, 10), np.random.default_rng(0)
    arrays = {path: random.normal(size=like.shape).astype(np.float32) for path, like in shapes_of(model).items()}
    state, source = convert(model, arrays, shape)
    interchange.write(tmp_path / "model.npz", state, {"layout": "torch"})
    leaves = load(tmp_path / "model.npz", model, shape).leaves
    jax.tree.map(np.testing.assert_array_equal, dict(leaves), arrays)
    assert [line for line in lines if line not in source] == []


class Flattened(nn.Module):
    """A flattened image passes a norm and dropout before the first dense layer."""

    steps: tuple[str, ...] = ()
    norm: Callable = lambda x: nn.BatchNorm(use_running_average=True, name="norm")(x)

    @nn.compact
    def __call__(self, x, train: bool = False):
        x = self.norm(x.reshape(len(x), -1))
        x = nn.Dropout(0.5, deterministic=not train)(x)
        return nn.Dense(5, name="head")(nn.Dense(7, name="dense")(x))

    def torch_modules(self):
        return self.steps


def with_norm(norm):
    return models.from_flax(Flattened(("Flatten()", "norm", "dense", "head"), norm), (8, 8, 2))


def with_convolution(shape, window, dilation=1):
    conv = lambda x: nn.Conv(4, window, kernel_dilation=dilation, name="conv")(x)
    convolve = lambda x: conv(x.reshape(len(x), *shape)).reshape(len(x), -1)
    return models.from_flax(Flattened(("conv", "Flatten()", "dense", "head"), convolve), shape)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: models.build("vit:layers=1,width=4,heads=1", (8, 8, 2), 10), "no PyTorch form, .* torch_modules"),
        (lambda: with_convolution((8, 8, 2), (2, 2), 2), "'conv' is no dense layer, .* neither dilation nor groups"),
        (lambda: models.from_flax(Flattened(("norm", "dense", "head")), (8, 8, 2)), "'norm' is no dense layer,"),
        (lambda: models.from_flax(Flattened(("dense", "head")), (8, 8, 2)), "of 'Flattened' .* its layer 'norm'"),
        (lambda: with_norm(lambda x: layers.GroupNorm(2, name="norm")(x)), "'norm' is no .* one group after a"),
    ],
)
def test_networks_without_a_form_in_pytorch_are_refused(make, words):
    refused(f"^layout=torch: .*{words}", convert, make(), shapes_of(make()), (8, 8, 2))


def test_a_batch_norm_of_vectors_is_pytorchs_for_vectors():
    model = with_norm(lambda x: layers.BatchNorm(name="norm")(x, False))
    arrays = jax.tree.map(lambda leaf: np.zeros(leaf.shape), shapes_of(model))
    assert "norm=nn.BatchNorm1d(128)," in convert(model, arrays, (8, 8, 2))[1]


def test_what_follows_a_flattened_image_has_its_channels_moved(tmp_path):
    shape, rng = (2, 3, 4), np.random.default_rng(0)
    model = models.from_flax(Flattened(), shape)
    sizes = {f"norm.{leaf}": [24] for leaf in ("weight", "bias", "running_mean", "running_var")}
    sizes |= {"dense.weight": [7, 24], "dense.bias": [7], "head.weight": [5, 7], "head.bias": [5]}
    path = save(tmp_path / "model.npz", state := state_of(sizes | {"norm.num_batches_tracked": []}))
    x = rng.normal(size=(3, *shape)).astype(np.float32)
    # As PyTorch computes: channels first, then flattened.
    y = x.transpose(0, 3, 1, 2).reshape(3, 24)
    y = (y - state["norm.running_mean"]) / np.sqrt(state["norm.running_var"] + 1e-5)
    y = y * state["norm.weight"] + state["norm.bias"]
    y = (y @ state["dense.weight"].T + state["dense.bias"]) @ state["head.weight"].T + state["head.bias"]
    found = model.apply(loaded(path, model, shape), {"x": x}, jax.random.key(0), False).logits
    np.testing.assert_allclose(found, y, atol=1e-4)
    assert load(path, model, shape).note == (
        "PyTorch's layout: 0 convolutions OIHW -> HWIO, 2 dense layers transposed, inputs of norm CHW -> HWC, "
        "inputs of dense CHW -> HWC"
    )


@pytest.mark.parametrize("window", [(3,), (3, 3, 3)])
def test_a_flattened_series_or_volume_has_its_channels_moved(window, tmp_path):
    shape = (*(2 for _ in window), 3)
    weight = np.arange(7 * 4 * 2 ** len(window), dtype=np.float32).reshape(7, 4, -1)  # [out, channel, position]
    path = save(tmp_path / "model.npz", {"dense.weight": weight.reshape(7, -1)})
    found = load(path, with_convolution(shape, window), shape).leaves["params.dense.kernel"]
    np.testing.assert_array_equal(found, weight.T.reshape(-1, 7))


MLP = "digits_mlp:hidden=6"


@pytest.fixture(scope="module")
def mlp():
    """(model, its own parameters by name, the same as a state dict)."""
    model = models.build(MLP, (8, 8, 1), 10)
    rng = np.random.default_rng(0)
    own = {name: rng.normal(size=leaf.shape).astype(np.float32) for name, leaf in shapes_of(model).items()}
    theirs = {name.removeprefix("params.").replace("kernel", "weight"): value.T for name, value in own.items()}
    return model, own, theirs


def same(leaves, own):
    return leaves.keys() == own.keys() and all(np.array_equal(leaves[name], own[name]) for name in own)


def test_the_layout_follows_the_names_unless_it_is_given(mlp, tmp_path):
    model, own, theirs = mlp
    for arrays in (own, theirs):
        assert same(load(save(tmp_path / "a.npz", arrays), model, (8, 8, 1)).leaves, own)
    # Arrays named as PyTorch's, in the layout of this package.
    renamed = {name.replace("params.", "").replace("kernel", "weight"): value for name, value in own.items()}
    names = dict(zip(renamed, own, strict=True))
    path = save(tmp_path / "b.npz", renamed)
    assert same(load(path, model, (8, 8, 1), names, "jax").leaves, own)
    refused("(?s)stored as", load, path, model, (8, 8, 1), names)


@pytest.mark.parametrize(
    "change, names, words",
    [
        (lambda s: s | {"extra.weight": s["classifier.weight"]}, None, ["'extra.weight'", "whose layers are", "null"]),
        (lambda s: s | {"classifier.weight": s["classifier.weight"][:3]}, None, ["[6, 3]", "[3, 6]", "[6, 10]"]),
        (lambda s: s | {"classifier.bias": np.zeros(10)}, None, ["'params.classifier.bias' is float64", "--precision"]),
        (lambda s: s | {"classifier.bias": np.full(10, np.nan, np.float32)}, None, ["NaN or infinite"]),
        (lambda s: s | {"fc.bias": s["classifier.bias"]}, {"fc": "classifier"}, ["'fc.bias'", "both", "to null"]),
        (lambda s: s, "{", ["is not JSON"]),
    ],
)
def test_what_does_not_fit_is_one_line(change, names, words, mlp, tmp_path):
    model, _, theirs = mlp
    path = save(tmp_path / "model.npz", change(dict(theirs)))
    refused(words, load, path, model, (8, 8, 1), names)


def test_a_name_that_is_mapped_to_null_is_left_out(mlp, tmp_path):
    model, own, theirs = mlp
    path = save(tmp_path / "model.npz", theirs | {"head.weight": np.zeros((2, 2), np.float32)})
    assert same(load(path, model, (8, 8, 1), {"head": None}).leaves, own)


def test_learned_positions_have_their_whole_name_in_a_map(tmp_path):
    path = save(tmp_path / "model.npz", {"wpe.weight": (own := np.arange(16, dtype=np.float32).reshape(4, 4))})
    model = models.build("vit:patch=2,layers=1,width=4,heads=2,pool=mean", (4, 4, 1), 10)
    assert same(load(path, model, (4, 4, 1), {"wpe.weight": "params.positions"}).leaves, {"params.positions": own})
