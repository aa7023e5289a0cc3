"""Complete runs with the client table in a file: the same bits as in memory, also when moved between the two."""

import dataclasses
import pathlib
import shutil

import jax
import numpy as np
import pytest

import fedwin
from fedwin import client_models
from fedwin.engine import placement
from fedwin.errors import UserError
from fedwin.residence import blockwise
from fedwin.residence.blockwise import Stored
from fedwin.residence.store import SnapshotLeaf
from fedwin.runs import checkpoint
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.config import Config
from tests.run_lines import lines
from tests.runs.killing import killed_after

ROOT = pathlib.Path(__file__).parents[2]
SMALL = Config(
    dataset="digits",
    partition="shards:per_client=2",
    num_clients=40,
    model="logistic",
    algorithm="fedhbm",
    num_rounds=12,
    clients_per_round=4,
    batch_size=16,
    client_lr=0.1,
    eval_every=3,
    final_evals=2,
    checkpoint_every=3,
    keep_checkpoints=2,
    keep_rounds=[3],
    rounds_per_dispatch=2,
    strategy="chunked:k=1",
)


def run(directory, **changes):
    fedwin.run(dataclasses.replace(SMALL, out_dir=str(directory), **changes), quiet=True)
    return directory


def leaves(directory, round):
    return Checkpoints(directory / "checkpoints" / "seed_0").load(round)[0]


def same(mine, theirs):
    """Same evaluations, same states; where all clients have rows, those of the others are the first ones."""
    assert lines(mine) == lines(theirs)
    for round in (3, 9, 12):
        a, b = leaves(mine, round), leaves(theirs, round)
        assert a.keys() == b.keys()
        shared = np.intersect1d(a["table.ids"], b["table.ids"])
        assert 0 < len(shared) == min(len(a["table.ids"]), len(b["table.ids"]))
        for name in a:
            each = [np.asarray(side[name]) for side in (a, b)]
            if name.startswith("table.") and name != "table.total":
                each = [rows[np.searchsorted(side["table.ids"], shared)] for rows, side in zip(each, (a, b))]
            np.testing.assert_array_equal(*each)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "LARGE_BYTES", 64)
        return {table: run(folder / table, table=table) for table in ("device", "file")}


def test_a_file_gives_the_bits_of_memory_and_holds_who_took_part(places):
    same(places["file"], places["device"])
    kept = leaves(places["file"], 12)
    assert all(isinstance(kept[name], SnapshotLeaf) for name in kept if name.startswith("table.rows"))
    assert isinstance(leaves(places["device"], 12)[_a_row(places["device"])], Stored)
    assert len(kept["table.ids"]) < 40 == len(leaves(places["device"], 12)["table.ids"])


def test_a_run_resumes_with_its_rows_in_another_place(places, tmp_path):
    """From the file to the host and back, each time from a checkpoint of the other."""
    copy = shutil.copytree(places["file"], tmp_path / "run")
    for table in ("host", "file"):
        shutil.rmtree(copy / "checkpoints" / "seed_0" / "12")
        (copy / "summary.json").unlink()
        run(copy, table=table)
        assert isinstance(leaves(copy, 12)[_a_row(copy)], SnapshotLeaf) == (table == "file")
        same(copy, places["device"])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["chunked:k=1", "sharded:devices=2,k=1"])
def test_a_table_in_files_of_its_own_goes_everywhere(strategy, places, tmp_path, monkeypatch):
    whole = places["device"] if strategy == SMALL.strategy else run(tmp_path / "whole", strategy=strategy)
    monkeypatch.setattr(placement, "LARGE_TABLE_BYTES", 0)
    monkeypatch.setattr(checkpoint, "LARGE_BYTES", 64)
    monkeypatch.setattr(blockwise, "BLOCK_BYTES", 4000)
    copy = run(tmp_path / "run", strategy=strategy)
    for table in ("device", "host", "device", "file"):
        shutil.rmtree(copy / "checkpoints" / "seed_0" / "12")
        (copy / "summary.json").unlink()
        run(copy, table=table, strategy=strategy)
        same(copy, whole)


def _a_row(directory) -> str:
    return next(name for name in leaves(directory, 12) if name.startswith("table.rows"))


def test_models_of_clients_are_trained_from_a_file(places):
    drawn = int(leaves(places["file"], 12)["table.ids"][0])
    never = min(set(range(40)) - set(leaves(places["file"], 12)["table.ids"].tolist()))
    mine, theirs = (client_models(places[table], [never, drawn]) for table in ("file", "device"))
    jax.tree.map(np.testing.assert_array_equal, mine, theirs)


def test_an_altered_row_is_refused_with_one_line(places, tmp_path):
    copy = shutil.copytree(places["file"], tmp_path / "run")
    data = copy / "checkpoints" / "seed_0" / "rows" / "data"
    data.write_bytes(bytes(len(data.read_bytes())))
    with pytest.raises(UserError, match="is damaged .the row of client") as caught:
        client_models(copy, leaves(copy, 12)["table.ids"][:2])
    assert "\n" not in str(caught.value)
    data.unlink()
    with pytest.raises(UserError, match="can't be read"):
        fedwin.load(copy)


@pytest.mark.slow
def test_forks_take_the_rows_with_them(places, tmp_path):
    for table in ("file", "device"):
        fork = run(tmp_path / table, table=table, fork_from=f"{places['file']}@3")
        assert [x for x in lines(fork) if x["round"] > 3] == [x for x in lines(places["device"]) if x["round"] > 3]


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_with_the_same_bits(tmp_path):
    changes = dict(table="file", num_rounds=400, num_clients=100, checkpoint_every=7, keep_rounds=[70])
    whole = run(tmp_path / "whole", **changes)
    config = dataclasses.replace(SMALL, out_dir=str(tmp_path / "run"), **changes)
    assert killed_after(config, (0, 28, 70, 140, 280)) >= 3
    run(tmp_path / "run", **changes)
    assert lines(tmp_path / "run") == lines(whole)
    for round in (70, 399, 400):
        mine, theirs = leaves(tmp_path / "run", round), leaves(whole, round)
        for name in theirs:
            np.testing.assert_array_equal(np.asarray(mine[name]), np.asarray(theirs[name]))
