"""Complete runs with windows in host memory or a file: the same bits as on the device, also when moved."""

import dataclasses
import pathlib
import shutil

import jax
import numpy as np
import pytest

import fedwin
from fedwin import client_models
from fedwin.errors import UserError
from fedwin.residence.saved import SnapshotRing
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.config import Config
from tests.run_lines import lines
from tests.runs.killing import killed_after

ROOT = pathlib.Path(__file__).parents[2]
PLACES = ("device", "host", "file")
# Windows longer and shorter than a dispatch (one goes round its ring in it more than once),
# broadcast averages among them, and a delay.
SMALL = Config(
    dataset="digits",
    partition="shards:per_client=2",
    num_clients=20,
    model="logistic",
    algorithm="ghb:tau=7",
    wrap=["ima:window=2,start=9"],
    observe=["wima:window=2", "wima:window=9", "wima:window=14", "wima:window=11,weights=cosine"],
    num_rounds=24,
    clients_per_round=4,
    batch_size=16,
    client_lr=0.1,
    eval_every=4,
    final_evals=2,
    checkpoint_every=6,
    keep_checkpoints=2,
    keep_rounds=[6, 12],
    rounds_per_dispatch=5,
    strategy="chunked:k=1",
)
RINGS = ("observers.wima.ring", "state.inner.ring", "state.own.window.ring")


def run(directory, **changes):
    fedwin.run(dataclasses.replace(SMALL, out_dir=str(directory), **changes), quiet=True)
    return directory


def leaves(directory, round):
    return Checkpoints(directory / "checkpoints" / "seed_0").load(round)[0]


def same(mine, theirs, rounds=(6, 12, 18, 24)):
    assert lines(mine) == lines(theirs)
    for round in rounds:
        a, b = leaves(mine, round), leaves(theirs, round)
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(np.asarray(a[name]), np.asarray(b[name]), err_msg=name)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("window")
    return {window: run(folder / window, window=window) for window in PLACES}


def test_the_bits_do_not_depend_on_where_windows_live(places):
    for window in ("host", "file"):
        same(places[window], places["device"])
    for window in PLACES:
        found = leaves(places[window], 24)
        assert set(RINGS) <= found.keys()
        assert all(isinstance(found[name], SnapshotRing) == (window == "file") for name in RINGS)
    assert not (places["host"] / "checkpoints" / "seed_0" / "windows").exists()


@pytest.mark.slow
def test_a_run_resumes_with_its_windows_in_another_place(places, tmp_path):
    """From the file to the device, the host and back, each time from a checkpoint of the one before."""
    copy = shutil.copytree(places["file"], tmp_path / "run")
    for window in ("device", "host", "file", "file"):
        shutil.rmtree(copy / "checkpoints" / "seed_0" / "24")
        (copy / "summary.json").unlink()
        run(copy, window=window)
        assert isinstance(leaves(copy, 24)[RINGS[0]], SnapshotRing) == (window == "file")
        same(copy, places["device"])


@pytest.mark.slow
def test_forks_take_the_windows_with_them(places, tmp_path):
    """Into a longer run too, whose window grows with it."""
    wanted = [line for line in lines(places["device"]) if line["round"] > 12]
    for source, window in (("file", "file"), ("file", "device"), ("device", "host")):
        fork = run(tmp_path / f"{source}_{window}", window=window, fork_from=f"{places[source]}@12")
        assert [line for line in lines(fork) if line["round"] > 12] == wanted
    longer = dict(num_rounds=30, observe=["wima:window=28"], checkpoint_every=0, keep_rounds=[12])
    ends = []
    for window in ("file", "device"):
        short = run(tmp_path / f"short_{window}", window=window, **longer | {"num_rounds": 24})
        ends.append(run(tmp_path / f"long_{window}", window=window, fork_from=f"{short}@12", **longer))
    same(*ends, rounds=(12, 30))


def test_models_come_out_of_a_file(places):
    mine, theirs = (client_models(places[window], [3, 1]) for window in ("file", "device"))
    jax.tree.map(np.testing.assert_array_equal, mine, theirs)
    # Its weights read the models of the window; a plain mean is a part of the state.
    mine, theirs = (fedwin.load(places[window], readout="wima11_cosine").variables for window in ("file", "device"))
    jax.tree.map(np.testing.assert_array_equal, mine, theirs)


def test_a_damaged_file_is_refused_with_one_line(places, tmp_path):
    copy = shutil.copytree(places["file"], tmp_path / "run")
    data = copy / "checkpoints" / "seed_0" / "windows" / RINGS[0] / "data"
    data.write_bytes(bytes(len(data.read_bytes())))
    with pytest.raises(UserError, match="is damaged") as caught:
        np.asarray(leaves(copy, 24)[RINGS[0]])
    assert "\n" not in str(caught.value)
    data.unlink()
    with pytest.raises(UserError, match="can't be read"):
        fedwin.load(copy)


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_bits(tmp_path):
    changes = dict(window="file", num_rounds=400, checkpoint_every=7, keep_rounds=[70])
    whole = run(tmp_path / "whole", **changes)
    config = dataclasses.replace(SMALL, out_dir=str(tmp_path / "run"), **changes)
    assert killed_after(config, (0, 28, 70, 140, 280)) >= 3
    run(tmp_path / "run", **changes)
    same(tmp_path / "run", whole, rounds=(70, 399, 400))
