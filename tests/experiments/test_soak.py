"""Fault injection by `fedwin soak`: a short run; longer ones are marked slow."""

import json
import os
import pathlib
import random
import shutil

import numpy as np
import pytest

from experiments.tools import soak, soak_faults


def clean(found):
    return not found.failures and found.counts["runs compared"] + found.counts["refused"] > 0


@pytest.mark.slow
def test_a_short_soak_finds_nothing(tmp_path):
    found = soak.soak(0, seed=18, jobs=1, place=tmp_path, runs=1)
    assert clean(found), found.failures


@pytest.mark.slow
def test_a_long_soak_finds_nothing(tmp_path):
    found = soak.soak(15, seed=random.randrange(10**6), jobs=os.cpu_count(), place=tmp_path)
    assert clean(found), found.failures


def test_differences_are_counted():
    a = {"x": np.arange(4, dtype=np.int32), "y": np.zeros(3, np.uint8)}
    assert soak.differing_bytes(a, {name: value.copy() for name, value in a.items()}) == 0
    assert soak.differing_bytes(a, {"x": np.array([0, 1, 2, 259], np.int32), "y": a["y"]}) == 1
    assert soak.differing_bytes(a, {"x": a["x"]}) == 3


def test_an_ending_with_a_traceback_or_another_status_is_a_failure(tmp_path):
    for status, said, good in (
        (1, "error: no room\n", True),
        (1, "Traceback (most recent call last)\nerror: no room\n", False),
        (1, "error: one\nerror: two\n", False),
        (None, "", False),
        (0, "", True),
    ):
        found = soak.Report()
        training = soak_faults.TrainingProcesses(tmp_path, [], tmp_path)
        soak.check_ending("full disk", training, soak_faults.Ended(status, said), (0, 1), found)
        assert (not found.failures) == good


def test_what_is_drawn_depends_on_the_seed_alone(tmp_path):
    assert soak.random_flags(random.Random("0 1")) == soak.random_flags(random.Random("0 1"))
    for place in ("a", "b"):
        folder = tmp_path / place
        folder.mkdir()
        (folder / "metrics.jsonl").write_text(json.dumps({"seed": 0, "round": 0}) * 20)
        assert soak_faults.altered(folder, random.Random(4))
    files = [sorted(path.name for path in (tmp_path / place).iterdir()) for place in "ab"]
    assert files[0] == files[1]
    shutil.rmtree(tmp_path / "a")
    assert not soak_faults.altered(pathlib.Path(tmp_path / "a"), random.Random(4))


def test_an_edited_cache_differs_in_one_digit_of_its_metadata(tmp_path):
    assert not soak_faults.altered_cache(tmp_path, random.Random(0))
    path = tmp_path / "digits.fedwin" / "meta.json"
    path.parent.mkdir()
    text = json.dumps({"classes": 10, "mean": [0.3056], "std": [0.3761]})
    for seed in range(8):
        path.write_text(text)
        assert soak_faults.altered_cache(tmp_path, random.Random(seed))
        edited = path.read_text()
        assert sum(a != b for a, b in zip(text, edited, strict=True)) == 1


def test_only_notes_about_another_environment_count():
    ended = soak_faults.Ended(
        0, "", "note: cores was 2 and is 1; the numbers of d may differ from now on.\nnote: other\n"
    )
    assert len(ended.notes) == 1 and "cores" in ended.notes[0]
    assert not soak_faults.Ended(0, "warning: cores\n").notes
