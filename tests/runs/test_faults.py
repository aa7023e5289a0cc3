"""Faults around a run (disk, files, processes): no data loss, and failures in one line."""

import os
import socket

import pytest

import fedwin
from experiments import runs as runs_command
from fedwin.errors import StorageError
from fedwin.files import locked
from fedwin.runs import run as runner
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.metrics_log import read_lines
from tests.refusals import disk_is_full, refused
from tests.runs.conftest import RUN
from tests.runs.disturbance import assert_same_outcome, interrupted, small_disk
from tests.small_runs import run_in

# Two processes in one directory


def test_a_second_process_is_refused_before_it_reads_data(copied, monkeypatch):
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with locked(copied):
        monkeypatch.setattr(runner, "prepare", None)  # no data is read first
        refused([f"process {os.getpid()} on {socket.gethostname()}", "--out_dir"], run_in, RUN, copied)
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before


def test_readers_take_no_lock(copied):
    with locked(copied):
        assert fedwin.load(copied).round == 12 and "finished" in runs_command.table(str(copied.parent))


# Writes that fail


@pytest.mark.slow
def test_a_failed_write_is_one_line_and_the_run_resumes_later(finished, tmp_path, monkeypatch):
    left, fsync = [6], os.fsync

    def failing(handle):
        left[0] -= 1
        if left[0] < 0:
            disk_is_full()
        fsync(handle)

    directory = tmp_path / "run"
    monkeypatch.setattr(os, "fsync", failing)
    said = refused(["can't be written (No space left on device)"], run_in, RUN, directory, error=StorageError)
    assert said.startswith(str(directory))
    assert not open_files(directory)
    monkeypatch.setattr(os, "fsync", fsync)
    run_in(RUN, directory)
    assert_same_outcome(directory, finished[0])


def open_files(directory):
    links = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    return [link for link in links if link.startswith(str(directory))]


def test_a_full_disk_under_a_checkpoint_is_one_line(finished, tmp_path, capfd):
    with small_disk(tmp_path / "disk") as resize:
        resize("300k")
        directory = tmp_path / "disk" / "run"
        words = r"checkpoints/seed_[01] can't be written \(No space left on device\)"
        refused(words, run_in, RUN, directory, keep_checkpoints=1, error=StorageError)
        assert capfd.readouterr() == ("", "")
        assert not list(directory.rglob("*tmp*")) and not open_files(directory)
        resize("8m")
        run_in(RUN, directory, keep_checkpoints=1)
        assert_same_outcome(directory, finished[0])


# Evaluations and checkpoints of an unfinished run that are not as they were; a finished run has checksums


@pytest.fixture
def unfinished(copied):
    """A run that was killed before its summary."""
    return interrupted(copied, 12)


def test_a_checkpoint_without_its_evaluations_or_of_another_seed_or_truncated_is_a_line_each(
    unfinished, finished, capfd
):
    lines = (unfinished / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (unfinished / "metrics.jsonl").write_bytes(b"".join(lines[:-1]))  # without round 12
    store = Checkpoints(unfinished / "checkpoints" / "seed_1", keep=9)
    leaves, extra = store.load(8)
    store.save(10, leaves, {name: extra[name] for name in ("seconds", "compile_seconds", "steady")} | {"seed": 0})
    store.close()
    victim = max((store.path / "8" / "run").rglob("*"), key=lambda path: path.stat().st_size * path.is_file())
    victim.write_bytes(victim.read_bytes()[:50])
    run_in(RUN, unfinished)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 3, said
    assert "metrics.jsonl lacks 1 of seed 1's evaluations up to round 12" in said[0]
    assert "belongs to seed 0" in said[1] and "8 can't be read" in said[2]
    assert_same_outcome(unfinished, finished[0])


def test_evaluations_that_are_gone_are_refused(unfinished, capfd):
    (unfinished / "metrics.jsonl").unlink()
    refused(["metrics.jsonl lacks", "No other checkpoint", "--out_dir"], run_in, RUN, unfinished)
    assert capfd.readouterr() == ("", "")
    (unfinished / "SHA256SUMS").touch()  # of a finished run
    refused("metrics.jsonl is gone; restore it", read_lines, unfinished / "metrics.jsonl")


@pytest.mark.parametrize("line", [b"\xff\n", b'{"round": 4, "model": {}}\n', b'{"seed":0,"round":4,"model":[]}\n'])
def test_a_line_that_is_no_evaluation_is_refused(unfinished, line):
    lines = (unfinished / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (unfinished / "metrics.jsonl").write_bytes(b"".join([*lines[:2], line, *lines[2:]]))
    refused("metrics.jsonl, line 3: not an evaluation; remove the line, or", read_lines, unfinished / "metrics.jsonl")
