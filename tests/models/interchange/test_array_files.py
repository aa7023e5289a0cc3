"""Files of named arrays: what is written is read back, and what is damaged or dangerous is refused."""

import json
import pathlib
import pickle
import zipfile

import numpy as np
import pytest

from fedwin.models import interchange
from fedwin.models.interchange import torch_files
from tests.data.formats.test_pickles import Called
from tests.refusals import refused

ARRAYS = {
    "params.a.kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "params.b": np.float32(2.5),
    "empty": np.zeros((0, 3), np.float64),
    "stats.mean": np.arange(4, dtype=np.float64)[::2],
}
METADATA = {"format": 1, "mean": [0.5], "config": {"algorithm": "fedavg"}}
SUFFIXES = [".npz", ".safetensors"]


def need(suffix):
    if suffix == ".safetensors":
        pytest.importorskip("safetensors", reason="needs the extra `safetensors`")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_back(suffix, tmp_path):
    need(suffix)
    path = tmp_path / f"model{suffix}"
    interchange.write(path, ARRAYS, METADATA)
    found = interchange.read(path)
    assert found.metadata == METADATA and found.arrays.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        assert found.arrays[name].dtype == value.dtype and found.arrays[name].shape == np.shape(value)
        np.testing.assert_array_equal(found.arrays[name], value)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_other_programs_read_it(tmp_path):
    path = tmp_path / "model.npz"
    interchange.write(path, ARRAYS, METADATA)
    with np.load(path) as archive:
        assert {*archive.files} == {*ARRAYS, "__metadata__"}
        assert json.loads(str(archive["__metadata__"]))["mean"] == [0.5]
    safetensors = pytest.importorskip("safetensors", reason="needs the extra `safetensors`")
    interchange.write(tmp_path / "model.safetensors", ARRAYS, METADATA)
    with safetensors.safe_open(tmp_path / "model.safetensors", framework="np") as file:
        assert {*file.keys()} == {*ARRAYS} and json.loads(file.metadata()["fedwin"])["mean"] == [0.5]


@pytest.mark.parametrize(
    "name, words", [("a.npz", "exists; .*--overwrite"), ("a.txt", "must end in .npz"), ("no/a.npz", "no folder")]
)
def test_targets_that_are_refused(name, words, tmp_path):
    (tmp_path / "a.npz").touch()
    refused(words, interchange.write, tmp_path / name, ARRAYS, {})
    half = {"params.w": np.zeros(2, "bfloat16")}
    refused(".npz files can't hold 'params.w', which is bfloat16", interchange.write, tmp_path / "b.npz", half, {})
    interchange.write(tmp_path / "a.npz", ARRAYS, {}, overwrite=True)
    assert interchange.read(tmp_path / "a.npz").arrays.keys() == ARRAYS.keys()


def test_files_that_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    refused("can't be read .No such file", interchange.read, path)
    np.savez(path, a=np.array([{}], object))
    refused("not a readable .npz", interchange.read, path)
    np.savez(path, a=np.array(["text"]))
    refused("'a' is <U4, not an array of numbers", interchange.read, path)
    np.savez(path, a=np.zeros(1), __metadata__=np.array("["))
    refused("metadata is damaged", interchange.read, path)
    np.savez(path, a=np.zeros(1), __metadata__=np.array(100_000 * '{"a":'))
    refused("metadata is damaged .nested too deeply", interchange.read, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "text")
    refused("'notes.txt' is no array", interchange.read, path)
    path.write_bytes(b"PK")
    refused("not a readable .npz", interchange.read, path)


# Written by torch 2.13: torch.save of an OrderedDict with a transposed float32 [2, 3], its first row (the same
# storage), a half [2], a bfloat16 [2], an int64 scalar, an empty tensor and a Parameter [1].
STATE = pathlib.Path(__file__).parent / "state.pt"


def test_a_state_dict_is_read_without_torch():
    found = interchange.read(STATE).arrays
    np.testing.assert_array_equal(found["t.weight"], np.arange(6, dtype=np.float32).reshape(3, 2).T)
    np.testing.assert_array_equal(found["t.row"], np.array([0, 2, 4], np.float32))
    assert found["half"].dtype == np.float16 and found["half"].tolist() == [0.5, -2.0]
    assert found["bf16"].dtype.name == "bfloat16" and found["bf16"].astype(float).tolist() == [1.5, -3.0]
    assert found["t.num_batches_tracked"].dtype == np.int64 and found["t.num_batches_tracked"] == 7
    assert found["empty"].shape == (0, 4) and found["parameter"].tolist() == [4.0]


def rewritten(path, pickled):
    """Writes the archive with another pickle."""
    with zipfile.ZipFile(STATE) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, pickled if name.endswith("data.pkl") else old.read(name))
    return path


def test_nothing_in_a_state_dict_is_executed(tmp_path):
    evil = Called(open, (str(tmp_path / "touched"), "w"))
    path = rewritten(tmp_path / "evil.pt", pickle.dumps({"a": evil}, 2))
    refused("names (_?io|__builtin__|builtins).open.*torch.load.*weights_only=True", interchange.read, path)
    assert not (tmp_path / "touched").exists()
    (tmp_path / "old.pth").write_bytes(pickle.dumps({"a": 1}, 2))
    refused("without running code", interchange.read, tmp_path / "old.pth")


@pytest.mark.parametrize("offset, size, stride", [(0, (2, 2), (2, 1)), (-1, (1,), (1,)), (0, (2,), (-1,))])
def test_a_tensor_beyond_its_storage_is_refused(offset, size, stride):
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        torch_files._tensor(np.zeros(3, np.float32), offset, size, stride)
    assert torch_files._tensor(np.arange(3.0), 1, (2,), (1,)).tolist() == [1, 2]
