"""Saving and loading checkpoints: bitwise round trips, damage, large arrays, retention."""

import json
import sys

import jax
import numpy as np
import pytest

from fedwin import window
from fedwin.runs import checkpoint
from fedwin.runs.checkpoint import Checkpoints, seed_checkpoints
from fedwin.testing import federations
from tests.refusals import refused


def some_run(name="scaffold"):
    fed = federations.federation()
    return federations.start(federations.build(name, fed), {}, fed)[0]


@pytest.fixture(scope="module")
def state():
    return some_run()


def test_a_state_survives_the_disk_bitwise_and_selected_rounds_are_kept(tmp_path, state):
    store = Checkpoints(tmp_path / "c", keep=2, rounds=[5])
    for round in (0, 5, 10, 15):
        store.save(round, state, {"seconds": 1.5, "diverged_at": 3})
    assert store.rounds() == [5, 10, 15] and store.latest()[1]["round"] == 15
    leaves, about = store.load(5)
    back = checkpoint.from_leaves(leaves, state)
    assert (about["round"], about["seconds"], about["diverged_at"], about["format"]) == (5, 1.5, 3, 1)
    assert jax.tree.structure(back) == jax.tree.structure(state)
    for a, b in zip(checkpoint.named_leaves(state).values(), checkpoint.named_leaves(back).values(), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    store.close()


def largest_file(directory):
    return max((p for p in directory.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


@pytest.mark.parametrize("damage", ["flip", "remove", "other seconds"])
def test_a_damaged_checkpoint_falls_back_with_a_warning(tmp_path, state, capsys, damage):
    store, hook = Checkpoints(tmp_path / "c"), sys.unraisablehook
    store.save(5, state, {})
    store.save(10, state._replace(params=jax.tree.map(lambda x: x + 1, state.params)), {"seconds": 1.0})
    store.close()
    victim = largest_file(tmp_path / "c" / "10" / "run")
    data = bytearray(victim.read_bytes())
    if damage == "flip":
        for at in range(len(data) // 4, len(data) // 2):
            data[at] ^= 0xFF
        victim.write_bytes(data)
    elif damage == "remove":
        victim.unlink()
    else:
        about = tmp_path / "c" / "10" / "about" / "metadata"
        about.write_text(json.dumps(json.loads(about.read_text()) | {"seconds": 2.0}))
    leaves, about = Checkpoints(tmp_path / "c").latest()
    assert about["round"] == 5 and sys.unraisablehook is hook
    np.testing.assert_array_equal(leaves["params.hidden"], np.asarray(state.params["hidden"]))
    (said,) = capsys.readouterr().err.splitlines()
    assert "10" in said and "Falling back" in said
    assert (tmp_path / "c" / "damaged_10").is_dir()  # moved aside, not deleted


def test_large_arrays_are_in_separate_files_with_the_same_checks(tmp_path, state, monkeypatch):
    store = Checkpoints(tmp_path / "c")
    monkeypatch.setattr(checkpoint, "LARGE_BYTES", 64)
    store.save(10, state, {})
    leaves, about = store.load(10)
    assert about["large"]
    for name, value in checkpoint.named_leaves(state).items():
        np.testing.assert_array_equal(leaves[name], value)
    victim = largest_file(tmp_path / "c" / "10" / "large")
    data = bytearray(victim.read_bytes())
    victim.write_bytes(data[:-4])
    refused("can't be read", store.load, 10)
    data[-1] ^= 1
    victim.write_bytes(data)
    refused("damaged", store.load, 10)


def test_a_seed_of_a_vmapped_group_is_a_part_of_its_state(tmp_path, state):
    group = jax.tree.map(lambda leaf: np.stack([leaf, leaf + 1]), state._replace(key=np.zeros(2, np.uint32)))
    store = Checkpoints(tmp_path / "checkpoints" / "seeds_3,7")
    for round, end in ((2, None), (4, 4)):
        of_seed = {"3": {"diverged_at": None}, "7": {"diverged_at": end}}
        store.save(round, group, {"seeds": [3, 7], "of_seed": of_seed})
    own = checkpoint.named_leaves(state)
    for seed, more in ((3, 0), (7, 1)):
        leaves, _ = seed_checkpoints(tmp_path, seed).load(2)
        np.testing.assert_array_equal(leaves["params.hidden"], own["params.hidden"] + more)
    assert seed_checkpoints(tmp_path, 3).rounds() == [2, 4] and seed_checkpoints(tmp_path, 5).rounds() == []
    assert checkpoint.saved_seeds(tmp_path) == [3, 7] and seed_checkpoints(tmp_path, 7).rounds() == [2]
    store.save(6, group, {"seeds": [3, 7], "of_seed": of_seed, "stop_on_divergence": False})
    assert seed_checkpoints(tmp_path, 7).rounds() == [2, 4, 6]


def test_a_checkpoint_of_another_run_is_rejected(tmp_path, state):
    assert Checkpoints(tmp_path / "nothing").latest() is None
    leaves = checkpoint.named_leaves(state)
    refused("another model or algorithm", checkpoint.from_leaves, leaves, some_run("fedavg"))
    leaves["params.hidden"] = leaves["params.hidden"][:, :3]
    refused("params.hidden", checkpoint.from_leaves, leaves, state)


def test_only_rings_that_nothing_has_left_are_resized():
    state = window.init(4, (3,))
    template = lambda slots: {"observers": {"wima": state._replace(ring=np.zeros((slots, 4), np.float32))}}
    for t in range(4):
        leaves = checkpoint.named_leaves({"observers": {"wima": state}})
        found = checkpoint.with_resized_rings(leaves, template(6))
        assert found["observers.wima.ring"].shape == ((6, 4) if t <= 3 else (4, 4))
        shorter = checkpoint.with_resized_rings(leaves, template(2))["observers.wima.ring"]
        assert shorter.shape == ((2, 4) if t <= 1 else leaves["observers.wima.ring"].shape)
        np.testing.assert_array_equal(shorter[:1], leaves["observers.wima.ring"][:1])
        state = window.push(state, np.full(4, t + 1.0, np.float32), (3,))
    full = checkpoint.named_leaves({"observers": {"wima": state}})
    assert checkpoint.with_resized_rings(full, template(6)) == full
