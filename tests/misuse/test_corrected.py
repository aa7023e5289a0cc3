"""A rejected command leaves nothing that would reject the corrected one."""

import dataclasses
import errno
import os
import shutil
import tempfile

import pytest

import fedwin
from fedwin.errors import UserError
from fedwin.runs.checkpoint import seed_checkpoints
from fedwin.runs.train import Driver
from tests.misuse import calls
from tests.refusals import refused
from tests.small_runs import finished_run, placed, run_in, small

BASE = small(clients_per_round=2, num_rounds=2, eval_every=1)
before = finished_run(dataclasses.replace(BASE, num_rounds=1))


@pytest.mark.parametrize("completed", [0, 2])
def test_what_is_refused_before_the_first_round_goes_and_what_was_saved_stays(tmp_path, monkeypatch, completed):
    """An image that cannot be read, for one: found when examples are placed, or in a later dispatch."""
    load = Driver.load

    def unreadable(driver, first, *args):
        if first == completed:
            raise UserError("x.png: not a decodable image")
        load(driver, first, *args)

    monkeypatch.setattr(Driver, "load", unreadable)
    config = placed(BASE, tmp_path / "run", num_rounds=3, eval_every=3, checkpoint_every=2)
    refused("not a decodable image", fedwin.run, config, quiet=True)
    assert seed_checkpoints(tmp_path / "run", 0).rounds() == ([0, 2] if completed else [])
    assert (tmp_path / "run").exists() == bool(completed)


def test_a_folder_that_is_none_is_found_before_the_first_round(before, tmp_path):
    name = "checkpoints/seed_0"
    folder = shutil.copytree(before[0], tmp_path / "run") / name
    config = placed(BASE, tmp_path / "run", num_rounds=1)
    folder.rename(tmp_path / "kept")
    folder.write_text("")
    refused(f"run/{name} can't be written .Not a directory.; make it writable", fedwin.run, config, quiet=True)
    folder.unlink()
    (tmp_path / "kept").rename(folder)
    assert fedwin.run(config, quiet=True)["num_rounds"] == 1


def test_checkpoints_that_may_not_be_written_are_found_before_the_first_round(before, tmp_path, monkeypatch):
    directory = shutil.copytree(before[0], tmp_path / "run")
    files = calls.tree_of(directory)

    def denied(dir, **_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(dir))

    monkeypatch.setattr(tempfile, "TemporaryFile", denied)
    words = "run/checkpoints can't be written .Permission denied.; make it writable"
    refused(words, run_in, BASE, directory, num_rounds=1)
    assert calls.tree_of(directory) == files
