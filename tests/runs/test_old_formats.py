"""Run directories of earlier formats load and resume."""

import dataclasses
import json
import pathlib
import tarfile

import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import window
from fedwin.errors import UserError
from fedwin.runs import directory as directories
from fedwin.runs.checkpoint import FORMAT, Checkpoints, leaves_of
from fedwin.runs.checkpoint_format import migrate
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import read_lines
from fedwin.runs.run import run

FOLDER = pathlib.Path(__file__).parent / "format_1"
# Client rows on the device and on the host, a delay line, wrappers before and after the server, all observers.
RUNS = ("fedadam", "fedhbm_host", "ghb", "scaffold")


def unpacked(name, tmp_path):
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / name


def config_of(directory):
    said = directories.read_config(directory).config
    return Config(**(said | {"out_dir": str(directory)}))


@pytest.mark.parametrize("name", RUNS)
def test_its_leaves_load_bit_equal(name, tmp_path):
    directory = unpacked(name, tmp_path)
    for seed in config_of(directory).seeds:
        leaves, about = Checkpoints(directory / "checkpoints" / f"seed_{seed}").latest()
        # `load` compares with the checksum over names, shapes, types and bytes that was written then.
        assert about["round"] == 6 and int(leaves["round"]) == 6 and "format" not in about
        assert all(np.isfinite(value).all() for value in leaves.values() if value.dtype.kind == "f")


# Quick: all observers, both kinds of wrappers and rows on the device.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("fedadam", "fedhbm_host", "ghb"))) for name in RUNS],
)
def test_it_resumes_to_the_same_numbers(name, tmp_path):
    directory = unpacked(name, tmp_path)
    expected = [json.loads(line) for line in (directory / "expected.jsonl").read_text().splitlines()]
    summary = run(config_of(directory), quiet=True)
    found = {(line["seed"], line["round"]): line for line in read_lines(directory / "metrics.jsonl")}
    assert len(found) == len(expected)
    for line in expected:
        mine = found[line["seed"], line["round"]]
        for name, values in line.items():
            if isinstance(values, dict):
                assert mine[name]["loss"] == pytest.approx(values["loss"], rel=1e-5), (line["round"], name)
                # One test image of 397 may fall on the other side of a boundary.
                assert mine[name]["accuracy"] == pytest.approx(values["accuracy"], abs=1.01 / 397)
        assert mine["bytes_down"] == line["bytes_down"] and mine["bytes_up"] == line["bytes_up"]
    assert {seed["final_round"] for seed in summary["seeds"].values()} == {12}


def test_old_windows_learn_which_of_their_vectors_have_no_mean():
    vectors = np.ones((12, 8), np.float32)
    vectors[6, 3], vectors[8, 0] = np.nan, 1e12
    for count, spoiled in ((6, 0), (7, 7), (9, 9), (12, 9)):
        state = window.init(8, (3, 4))
        for vector in vectors[:count]:
            state = window.push(state, jnp.asarray(vector), (3, 4))
        leaves = leaves_of({"observers": {"wima": state}, "round": np.int32(count)})
        old = {name: value for name, value in leaves.items() if not name.endswith("spoiled")}
        new = migrate(old, 1, FORMAT)
        assert new.keys() == leaves.keys() and new["observers.wima.spoiled"] == spoiled == int(state.spoiled)


def test_other_flags_are_refused_and_a_new_field_means_its_default(tmp_path):
    directory = unpacked("ghb", tmp_path)
    known = json.loads((directory / "config.json").read_text())
    del known["config"]["shuffle"]  # as if the field were newer than the directory
    (directory / "config.json").write_text(json.dumps(known))
    config = config_of(directory)
    assert directories.load_config(config, directory).identity.config["shuffle"] is True
    with pytest.raises(UserError, match="--shuffle=True, not False"):
        directories.load_config(dataclasses.replace(config, shuffle=False), directory)


def test_any_flipped_bit_of_a_configuration_is_noticed_or_changes_nothing(tmp_path):
    """Of files with a seal; those of older formats have none."""
    directory = unpacked("ghb", tmp_path)
    known = directories.read_config(directory)
    directories.write_config(directory, config_of(directory), known.identity, True, "cnn")
    path = directory / "config.json"
    whole, before, refused = path.read_bytes(), directories.read_config(directory), 0
    assert json.loads(whole)["format"] == directories.FORMAT and json.loads(whole)["seal"]
    for at in range(0, 8 * len(whole), 23):  # every bit of a byte gets its turn
        data = bytearray(whole)
        data[at // 8] ^= 1 << at % 8
        path.write_bytes(data)
        try:
            assert directories.read_config(directory) == before
        except UserError as error:
            assert "\n" not in str(error) and "config.json" in str(error)
            refused += 1
    assert refused > 6 * len(whole) / 23  # most of the bytes say something
    path.write_bytes(whole.replace(b'"num_rounds": 12', b'"num_rounds": 13'))
    with pytest.raises(UserError, match=r"config.json is damaged .its checksum differs.; restore it"):
        directories.read_config(directory)


def test_a_later_format_is_refused(tmp_path):
    directory = unpacked("ghb", tmp_path)
    known = json.loads((directory / "config.json").read_text()) | {"format": 99}
    (directory / "config.json").write_text(json.dumps(known))
    with pytest.raises(UserError, match="later version"):
        directories.read_config(directory)
