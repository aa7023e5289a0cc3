"""Saving and loading checkpoints: bitwise round trips, damage, large arrays, retention."""

import json
import logging
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedwin
from fedwin.errors import UserError
from fedwin.runs import checkpoint
from fedwin.runs.config import Config
from fedwin.testing import federations


def some_run(name="scaffold"):
    fed = federations.federation()
    return federations.start(federations.build(name, fed), {}, fed)[0]


def test_a_run_survives_the_disk_bitwise(tmp_path):
    run = some_run()
    store = checkpoint.Checkpoints(tmp_path / "c", keep=2)
    for round in (0, 5, 10):
        store.save(round, run, {"seconds": 1.5})
    assert store.rounds() == [5, 10]
    leaves, about = store.latest()
    back = checkpoint.from_leaves(leaves, run)
    assert about["round"] == 10 and about["seconds"] == 1.5
    assert jax.tree.structure(back) == jax.tree.structure(run)
    for a, b in zip(checkpoint.leaves_of(run).values(), checkpoint.leaves_of(back).values(), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    store.close()


def test_copies_do_not_hold_the_device_buffers():
    run = some_run()
    kept = checkpoint.leaves_of(run)
    donate = jax.jit(
        lambda r: jax.tree.map(lambda x: x + 1 if jnp.issubdtype(x.dtype, jnp.inexact) else x, r), donate_argnums=0
    )
    old = run.params["hidden"]
    donate(run)
    assert old.is_deleted()
    assert kept["params.hidden"].flags.owndata


def largest_file(directory):
    return max((p for p in directory.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_checkpoint_falls_back_with_a_warning(tmp_path, capsys, damage):
    run = some_run()
    store = checkpoint.Checkpoints(tmp_path / "c")
    store.save(5, run, {})
    store.save(10, run._replace(params=jax.tree.map(lambda x: x + 1, run.params)), {})
    store.close()
    victim = largest_file(tmp_path / "c" / "10" / "run")
    data = bytearray(victim.read_bytes())
    if damage == "truncate":
        victim.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        for at in range(len(data) // 4, len(data) // 2):
            data[at] ^= 0xFF
        victim.write_bytes(data)
    else:
        victim.unlink()
    leaves, about = checkpoint.Checkpoints(tmp_path / "c").latest()
    assert about["round"] == 5
    np.testing.assert_array_equal(leaves["params.hidden"], np.asarray(run.params["hidden"]))
    said = capsys.readouterr().err
    assert "10" in said and "Falling back" in said
    assert (tmp_path / "c" / "damaged_10").is_dir()  # moved aside, not deleted


def test_large_arrays_are_in_separate_files_with_the_same_checks(tmp_path, monkeypatch):
    run, store = some_run(), checkpoint.Checkpoints(tmp_path / "c")
    store.save(5, run, {})
    before = store.load(5)[1]["digest"]
    monkeypatch.setattr(checkpoint, "LARGE_BYTES", 64)
    store.save(10, run, {})
    leaves, about = store.load(10)
    assert about["large"] and about["digest"] == before
    for name, value in checkpoint.leaves_of(run).items():
        np.testing.assert_array_equal(leaves[name], value)
    victim = largest_file(tmp_path / "c" / "10" / "large")
    data = bytearray(victim.read_bytes())
    victim.write_bytes(data[:-4])
    with pytest.raises(UserError, match="can't be read"):
        store.load(10)
    data[-1] ^= 1
    victim.write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        store.load(10)


def test_checkpoint_metadata_is_checked(tmp_path):
    store = checkpoint.Checkpoints(tmp_path / "c")
    store.save(5, some_run(), {"diverged_at": 3, "seconds": 1.25})
    assert store.load(5)[1]["diverged_at"] == 3
    said = tmp_path / "c" / "5" / "about" / "metadata"
    said.write_text(json.dumps(json.loads(said.read_text()) | {"diverged_at": 4}))
    with pytest.raises(UserError, match="damaged"):
        store.load(5)


def test_only_errors_of_abandoned_saves_are_not_reported():
    def record(error):
        return logging.LogRecord(
            "asyncio", logging.ERROR, "", 0, "never retrieved", (), (None, error, error.__traceback__)
        )

    def raised(filename):
        try:
            exec(compile("raise ValueError('no room')", filename, "exec"))
        except ValueError as error:
            return error

    assert not checkpoint.is_not_from_orbax(record(raised("/somewhere/orbax/checkpoint/handlers.py")))
    assert checkpoint.is_not_from_orbax(record(raised("/somewhere/else.py")))


def test_a_checkpoint_of_another_run_is_rejected():
    leaves = checkpoint.leaves_of(some_run("scaffold"))
    with pytest.raises(UserError, match="another model or algorithm"):
        checkpoint.from_leaves(leaves, some_run("fedavg"))
    leaves["params.hidden"] = leaves["params.hidden"][:, :3]
    with pytest.raises(UserError, match="params.hidden"):
        checkpoint.from_leaves(leaves, some_run("scaffold"))


def test_no_checkpoint_is_none(tmp_path):
    assert checkpoint.Checkpoints(tmp_path / "nothing").latest() is None


def test_selected_rounds_are_retained_with_the_newest(tmp_path):
    config = Config(
        dataset="digits",
        model="digits_mlp:hidden=2",
        num_clients=20,
        clients_per_round=2,
        num_rounds=9,
        eval_every=9,
        final_evals=0,
        checkpoint_every=4,
        keep_checkpoints=1,
        keep_rounds=[3, 4],
        out_dir=str(tmp_path / "r"),
    )
    fedwin.run(config, quiet=True)
    assert checkpoint.Checkpoints(tmp_path / "r" / "checkpoints" / "seed_0").rounds() == [3, 4, 9]


def test_after_a_failed_load_background_errors_are_silent_and_others_are_shown(tmp_path, monkeypatch):
    """Threads of tensorstore report to an event loop that orbax has closed, some after the error of the load."""
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: shown.append(str(unraisable.exc_value)))
    store = checkpoint.Checkpoints(tmp_path / "c")
    store.save(5, some_run(), {})
    store.close()
    largest_file(tmp_path / "c" / "5" / "run").unlink()
    with pytest.raises(UserError, match="can't be read"):
        store.load(5)
    for text in ("Event loop is closed", "another error"):
        sys.unraisablehook(types.SimpleNamespace(exc_value=RuntimeError(text)))
    assert shown == ["another error"]
