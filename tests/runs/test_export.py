"""export and --init_from=FILE: a model leaves a run as a file, and a run starts from a file."""

import dataclasses
import json

import numpy as np
import pytest

import fedwin
from fedwin.models import interchange
from fedwin.runs.checkpoint import named_leaves
from fedwin.runs.prepare import prepare
from fedwin.runs.start import init_source
from tests.refusals import refused
from tests.runs import test_start

SMALL = dataclasses.replace(test_start.SMALL, model="digits_mlp:hidden=8")


@pytest.fixture(scope="module")
def file(finished, tmp_path_factory):
    return fedwin.export(finished[0], tmp_path_factory.mktemp("export") / "model.npz", 1, 8, "wima3")


def test_a_file_has_the_read_out_and_everything_to_apply_it(finished, file):
    run = finished[0]
    trained = fedwin.load(run, 1, 8, "wima3")
    found = interchange.read(file)
    for name, value in named_leaves(trained.variables).items():
        np.testing.assert_array_equal(found.arrays[name], value)
    about = found.metadata
    expected = dict(seed=1, round=8, readout="wima3", num_classes=10, input_shape=[8, 8, 1])
    assert expected.items() <= about.items()
    assert about["fingerprint"] == json.loads((run / "config.json").read_text())["fingerprint"]
    assert about["config"]["model"] == "digits_mlp:hidden=8" and "data_dir" not in about["config"]
    # Two layers by hand, from the file alone.
    x = trained.prepared.dataset.test["x"][:5]
    assert about["input_dtype"] == str(x.dtype)
    y = ((x / 255 - about["mean"]) / about["std"]).reshape(5, -1)
    layers = sorted({name.rpartition(".")[0] for name in found.arrays} - {"params.classifier"})
    for layer in layers:
        y = np.maximum(y @ found.arrays[f"{layer}.kernel"] + found.arrays[f"{layer}.bias"], 0)
    y = y @ found.arrays["params.classifier.kernel"] + found.arrays["params.classifier.bias"]
    np.testing.assert_allclose(trained.logits(x), y, atol=1e-4)


def test_in_pytorchs_layout_it_is_a_state_dict_with_its_module(finished, file, tmp_path):
    out = fedwin.export(finished[0], tmp_path / "model.npz", 1, 8, "wima3", layout="torch")
    jax_layout, found = interchange.read(file), interchange.read(out)
    assert found.metadata == jax_layout.metadata | {"layout": "torch", "source": found.metadata["source"]}
    for name, value in jax_layout.arrays.items():
        layer, leaf = name.removeprefix("params.").split(".")
        np.testing.assert_array_equal(found.arrays[f"{layer}.{leaf.replace('kernel', 'weight')}"], value.T)
    source = found.metadata["source"]
    assert "dense1=nn.Linear(64, 8)" in source and f"torch.tensor({found.metadata['mean']})" in source
    found, _ = initial_parameters(out)
    for name, value in jax_layout.arrays.items():
        np.testing.assert_array_equal(found[name], value)


def test_existing_files_and_what_a_run_does_not_have_are_refused(finished, file, tmp_path):
    refused("exists; .*overwrite", fedwin.export, finished[0], file)
    refused("readout='wima9'", fedwin.export, finished[0], tmp_path / "a.npz", readout="wima9")
    assert not list(tmp_path.iterdir())


def initial_parameters(text):
    """Returns name -> value of the parameters that a run with this --init_from begins with, and what it says."""
    prepared = prepare(dataclasses.replace(SMALL, init_from=str(text)))
    return named_leaves({"params": prepared.start(0, 1).params}), str(prepared.initial[0])


@pytest.mark.parametrize("part", ["features", "classifier"])
def test_a_part_of_a_file(part, file, tmp_path):
    with np.load(file) as archive:
        stored = {name: archive[name] for name in archive.files if name.startswith("params.")}
    if part == "features":  # of a network with other classes
        stored = {name: value[..., :3] if "classifier" in name else value for name, value in stored.items()}
    np.savez(tmp_path / "model.npz", **stored)
    found, said = initial_parameters(f"{tmp_path / 'model.npz'}:part={part}")
    assert said == f"the {part} of {tmp_path / 'model.npz'}"
    for name, value in stored.items():
        assert np.array_equal(found[name], value) == (("classifier" in name) == (part == "classifier")), name


@pytest.mark.parametrize(
    "text, words",
    [
        ("a.npz:layout=tf", ["layout=tf", "auto, jax, torch"]),
        ("a.npz:names=a.json", ["no option 'names'", "part, map and layout"]),
        ("model.h5", ["'model.h5' is neither DIR@ROUND:part=PART nor FILE", "*.npz, *.safetensors, *.pt or *.pth"]),
    ],
)
def test_a_malformed_text_is_one_line(text, words):
    refused(words, init_source, text)
