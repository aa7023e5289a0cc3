"""Complete runs with client rows and windows in main memory or in files: the bits of the device, also when moved."""

import shutil

import jax
import numpy as np
import pytest

import fedwin
from fedwin import client_models
from fedwin.engine import placement
from fedwin.residence import blockwise
from fedwin.residence.blockwise import Stored
from fedwin.residence.saved import SnapshotRing
from fedwin.residence.store import SnapshotLeaf
from fedwin.runs import checkpoint
from tests.refusals import refused
from tests.runs.disturbance import assert_same_state, interrupted
from tests.small_runs import leaves, lines, run_in, small

PLACES = ("device", "host", "file")
# Rows of clients; windows longer and shorter than a dispatch (one goes round its ring in it more than once), averages
# that are broadcast among them.
SMALL = small(
    partition="shards:per_client=2",
    num_clients=40,
    algorithm="fedhbm",
    wrap=["ima:window=3,start=2,feedback=0.5"],
    observe=["wima:window=2", "wima:window=9", "wima:window=11,weights=cosine"],
    num_rounds=15,
    clients_per_round=4,
    batch_size=16,
    eval_every=3,
    final_evals=2,
    checkpoint_every=5,
    keep_checkpoints=2,
    keep_rounds=[5, 10],
)
RINGS = ("observers.wima.ring", "state.own.window.ring")


def run(directory, place, **changes):
    run_in(SMALL, directory, **{"table": place, "window": place} | changes)
    return directory


def row_of(directory):
    return next(name for name in leaves(directory, 15) if name.startswith("table.rows"))


def same(mine, theirs, rounds=(5, 10, 15), after=-1):
    """Same evaluations after a round, same states."""
    since = lambda directory: [line for line in lines(directory) if line["round"] > after]
    assert since(mine) == since(theirs)
    for round in rounds:
        assert_same_state(mine, theirs, round)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "LARGE_BYTES", 64)
        return {place: run(folder / place, place) for place in PLACES}


def test_the_bits_do_not_depend_on_where_rows_and_windows_live(places):
    for place in ("host", "file"):
        same(places[place], places["device"])
    for place in PLACES:
        found = leaves(places[place], 15)
        assert set(RINGS) <= found.keys()
        assert all(isinstance(found[name], SnapshotRing) == (place == "file") for name in RINGS)
        rows = [leaf for name, leaf in found.items() if name.startswith("table.rows")]
        assert all(isinstance(leaf, SnapshotLeaf if place == "file" else Stored) for leaf in rows)
        assert (len(found["table.ids"]) == 40) == (place == "device")
    assert not (places["host"] / "checkpoints" / "seed_0" / "windows").exists()


def test_a_run_resumes_with_its_rows_and_windows_in_another_place(places, tmp_path):
    """From the file to the host and back, each time from a checkpoint of the other."""
    copy = shutil.copytree(places["file"], tmp_path / "run")
    for place in ("host", "file"):
        interrupted(copy, 10)
        run(copy, place)
        assert isinstance(leaves(copy, 15)[row_of(copy)], SnapshotLeaf) == (place == "file")
        assert isinstance(leaves(copy, 15)[RINGS[0]], SnapshotRing) == (place == "file")
        same(copy, places["device"])


@pytest.mark.slow
def test_a_table_in_files_of_its_own_goes_everywhere(tmp_path, monkeypatch):
    strategy = "sharded:devices=2,k=1"
    whole = run(tmp_path / "whole", "auto", strategy=strategy)
    monkeypatch.setattr(placement, "LARGE_TABLE_BYTES", 0)
    monkeypatch.setattr(checkpoint, "LARGE_BYTES", 64)
    monkeypatch.setattr(blockwise, "BLOCK_BYTES", 4000)
    copy = run(tmp_path / "run", "auto", strategy=strategy)
    for table in ("device", "host", "device", "file"):
        interrupted(copy, 10)
        run(copy, "auto", table=table, strategy=strategy)
        same(copy, whole)


def test_models_come_out_of_files(places):
    drawn = int(leaves(places["file"], 15)["table.ids"][0])
    never = min(set(range(40)) - set(leaves(places["file"], 15)["table.ids"].tolist()))
    mine, theirs = (client_models(places[place], [never, drawn]) for place in ("file", "device"))
    jax.tree.map(np.testing.assert_array_equal, mine, theirs)
    # Its weights read the models of the window; a plain mean is a part of the state.
    mine, theirs = (fedwin.load(places[place], readout="wima11_cosine").variables for place in ("file", "device"))
    jax.tree.map(np.testing.assert_array_equal, mine, theirs)


@pytest.mark.parametrize("folder", ["rows", f"windows/{RINGS[0]}"])
def test_a_damaged_file_is_refused_with_one_line(folder, places, tmp_path):
    copy = shutil.copytree(places["file"], tmp_path / "run")
    data = max((copy / "checkpoints" / "seed_0" / folder).rglob("data"))
    data.write_bytes(bytes(len(data.read_bytes())))
    refused("is damaged", np.asarray, leaves(copy, 15)[row_of(copy) if folder == "rows" else RINGS[0]])
    data.unlink()
    refused(f"the records in .*{folder} can't be read", fedwin.load, copy)


@pytest.mark.slow
def test_forks_take_rows_and_windows_with_them(places, tmp_path):
    """Into a longer run too, whose window grows with it."""
    for source, place in (("file", "device"), ("file", "file"), ("device", "host")):
        fork = run(tmp_path / f"{source}_{place}", place, fork_from=f"{places[source]}@10")
        same(fork, places["device"], rounds=(15,), after=10)
        assert lines(fork)[0] == lines(tmp_path / "file_device")[0]  # before the first dispatch
    longer = dict(num_rounds=20, observe=["wima:window=19"], checkpoint_every=0, keep_rounds=[10])
    ends = []
    for place in ("file", "device"):
        short = run(tmp_path / f"short_{place}", place, **longer | {"num_rounds": 15})
        ends.append(run(tmp_path / f"long_{place}", place, fork_from=f"{short}@10", **longer))
    same(*ends, rounds=(10, 20))


def test_a_fork_on_the_device_has_the_first_rows_of_clients_that_had_not_taken_part(tmp_path):
    """Ditto's hold the model of round 0, not that of the checkpoint."""
    changes = dict(algorithm="ditto", wrap=[], observe=[], num_rounds=6, keep_rounds=[5])
    whole, parent = (run(tmp_path / place, place, **changes) for place in ("device", "host"))
    fork = run(tmp_path / "fork", "device", fork_from=f"{parent}@5", **changes)
    same(fork, whole, rounds=(6,), after=5)


@pytest.mark.slow
def test_a_delay_in_a_file_has_the_bits_of_the_device(tmp_path):
    for place in ("file", "device"):
        run(tmp_path / place, place, algorithm="ghb:tau=7", num_clients=20)
    same(tmp_path / "file", tmp_path / "device")
    assert isinstance(leaves(tmp_path / "file", 15)["state.inner.ring"], SnapshotRing)
