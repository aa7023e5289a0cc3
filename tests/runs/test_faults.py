"""Faults around a run (disk, files, processes): no data loss, and failures in one line."""

import dataclasses
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys

import pytest

import fedwin
from experiments import list as list_command
from experiments.tables import scores
from fedwin.errors import StorageError, UserError
from fedwin.files import locked
from fedwin.runs import run as runner
from fedwin.runs import summary as summaries
from fedwin.runs.config import Config
from fedwin.runs.journal import Journal
from fedwin.runs.train import Result
from tests.runs.disturbance import Disk, outcome

ROOT = pathlib.Path(__file__).parents[2]
SMALL = Config(
    dataset="digits",
    num_clients=20,
    partition="dirichlet:alpha=0",
    model="digits_mlp:hidden=8",
    algorithm="scaffold",
    clients_per_round=3,
    batch_size=16,
    num_rounds=12,
    eval_every=2,
    final_evals=3,
    checkpoint_every=4,
    keep_checkpoints=10,
    rounds_per_dispatch=4,
    strategy="chunked:k=1",
)


def run(directory, **changes):
    return runner.run(dataclasses.replace(SMALL, out_dir=str(directory), **changes), quiet=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole") / "run"
    run(directory)
    return directory


@pytest.fixture
def copied(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def same(directory, whole):
    mine, theirs = outcome(directory), outcome(whole)
    assert {k: v.tobytes() for k, v in mine[0].items()} == {k: v.tobytes() for k, v in theirs[0].items()}
    assert mine[1:] == theirs[1:]


def one_line(caught):
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Two processes in one directory


def test_a_second_process_is_refused_before_it_reads_data(copied, monkeypatch):
    def read(*args):
        raise AssertionError("the data was read first")

    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with locked(copied):
        monkeypatch.setattr(runner, "prepare", read)
        with pytest.raises(UserError) as caught:
            run(copied)
        (copied / ".lock").write_text("")
    said = one_line(caught)
    assert f"process {os.getpid()} on {socket.gethostname()}" in said and "--out_dir" in said
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before


def test_readers_take_no_lock(copied, tmp_path):
    with locked(copied):
        assert fedwin.load(copied).round == 12
        assert "finished" in list_command.runs_table(str(copied.parent))
        run(tmp_path / "fork", fork_from=f"{copied}@8")
    assert not (copied / ".lock").exists()


def test_a_dead_process_holds_nothing(copied, whole):
    code = f"import time\nfrom fedwin.files import locked\nwith locked({str(copied)!r}):\n print(1, flush=True)\n"
    holder = subprocess.Popen([sys.executable, "-c", f"{code} time.sleep(99)"], cwd=ROOT, stdout=subprocess.PIPE)
    holder.stdout.read(1)
    with pytest.raises(UserError, match=f"in use by process {holder.pid} on {socket.gethostname()}"):
        run(copied)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locked(copied):
        pass
    same(copied, whole)


def test_a_lock_file_that_was_removed_meanwhile_is_not_counted_on(tmp_path):
    with locked(tmp_path):
        (tmp_path / ".lock").unlink()
        with locked(tmp_path), pytest.raises(UserError, match="in use"), locked(tmp_path):
            pass


# Writes that fail


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.slow), 6])
def test_a_failed_write_is_one_line_and_the_run_resumes_later(whole, tmp_path, monkeypatch, count):
    left, fsync = [count], os.fsync

    def failing(handle):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, os.strerror(28))
        fsync(handle)

    directory = tmp_path / "run"
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StorageError) as caught:
        run(directory)
    said = one_line(caught)
    assert said.startswith(str(directory)) and "can't be written (No space left on device)" in said
    assert not open_files(directory)
    monkeypatch.setattr(os, "fsync", fsync)
    run(directory)
    same(directory, whole)


def open_files(directory):
    links = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    return [link for link in links if link.startswith(str(directory))]


def test_a_full_disk_under_a_checkpoint_is_one_line(whole, tmp_path, capfd):
    disk = Disk(tmp_path / "disk")
    with disk.mounted() as allowed:
        if not allowed:
            pytest.skip("no disk may be mounted here")
        disk.mount("remount,size=160k")
        directory = disk.place / "run"
        with pytest.raises(StorageError) as caught:
            run(directory)
        assert "checkpoints/seed_0 can't be written (No space left on device)" in one_line(caught)
        assert capfd.readouterr() == ("", "")
        assert not list(directory.rglob("*tmp*"))
        disk.mount("remount,size=8m")
        run(directory)
        same(directory, whole)


def test_a_file_size_limit_is_a_line_of_its_own(whole, tmp_path, capfd):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        with pytest.raises(StorageError, match="checkpoints/seed_0 can't be written .File too large."):
            run(tmp_path / "run")
        said = capfd.readouterr().err
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "Traceback" not in said
    run(tmp_path / "run")
    same(tmp_path / "run", whole)


def test_an_interrupted_call_from_python_leaves_nothing_open(tmp_path, monkeypatch):
    def interrupted(journal, completed, run):
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run")
    assert not open_files(tmp_path)
    with locked(tmp_path / "run"):
        pass


# Evaluations and checkpoints that are not what they were


def metrics(directory):
    return directory / "metrics.jsonl"


def cut(directory, lines):
    kept = metrics(directory).read_bytes().splitlines(keepends=True)[:lines]
    metrics(directory).write_bytes(b"".join(kept))


def test_a_summary_never_covers_fewer_evaluations_than_it_says(copied, whole, capfd):
    cut(copied, 4)  # up to round 6
    run(copied)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2 and all("metrics.jsonl lacks" in line and "round 4" in line for line in said)
    same(copied, whole)


def test_an_altered_evaluation_is_not_counted_on(copied, whole, capfd):
    lines = [json.loads(line) for line in metrics(copied).read_text().splitlines()]
    lines[4]["model"]["accuracy"] += 0.25  # round 8
    metrics(copied).write_text("".join(json.dumps(line) + "\n" for line in lines))
    run(copied)
    assert capfd.readouterr().err.count("metrics.jsonl has been altered") == 2
    same(copied, whole)


def refused(directory, changes, words):
    changes(directory)
    with pytest.raises(UserError) as caught:
        run(directory)
    said = one_line(caught)
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda d: metrics(d).unlink(), ["metrics.jsonl lacks", "No other checkpoint"]),
        (lambda d: metrics(d).write_bytes(b""), ["metrics.jsonl lacks", "--out_dir"]),
        (lambda d: insert(d, b"\x00\xff\xfe\n"), ["metrics.jsonl, line 3", "--out_dir"]),
        (lambda d: insert(d, b'{"round": 4, "model": {}}\n'), ["metrics.jsonl, line 3"]),
        (lambda d: insert(d, b"[]\n"), ["metrics.jsonl, line 3"]),
    ],
    ids=["deleted", "emptied", "junk", "no seed", "no evaluation"],
)
def test_evaluations_that_cannot_be_trusted_are_refused(copied, change, words, capfd):
    refused(copied, change, words)
    assert capfd.readouterr() == ("", "")


def insert(directory, line):
    lines = metrics(directory).read_bytes().splitlines(keepends=True)
    metrics(directory).write_bytes(b"".join([*lines[:2], line, *lines[2:]]))


def test_a_checkpoint_of_another_seed_and_a_truncated_one_are_a_line_each(copied, whole, tmp_path, capfd):
    run(tmp_path / "other", seeds=[1])
    capfd.readouterr()
    mine, other = copied / "checkpoints" / "seed_0", tmp_path / "other" / "checkpoints" / "seed_1"
    shutil.rmtree(mine / "12")
    shutil.copytree(other / "12", mine / "12")
    victim = max((mine / "8" / "run").rglob("*"), key=lambda path: path.stat().st_size * path.is_file())
    victim.write_bytes(victim.read_bytes()[:50])
    run(copied)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2 and "belongs to seed 1" in said[0] and "8 can't be read" in said[1]
    same(copied, whole)


# Seeds that diverge


@pytest.mark.slow
def test_a_run_that_diverged_is_reported_alike_when_it_is_run_again(tmp_path):
    first = run(tmp_path / "run", client_lr=1e7, checkpoint_every=2)
    again = run(tmp_path / "run", client_lr=1e7, checkpoint_every=2)
    for found in (first, again):
        assert found["seeds"][0]["diverged_at"] is not None and found["seeds"][0]["last"] is None
        assert found["over_seeds"]["model"]["accuracy"] == {"mean": None, "std": None, "seeds": 0, "of_seeds": 1}
        assert "diverged" in scores.summary_table({"fedavg": found})
    strip = lambda found: {k: v for k, v in found["seeds"][0].items() if "seconds" not in k and "per" not in k}
    assert strip(first) == strip(again)


def test_diverged_seeds_are_in_no_mean():
    config = dataclasses.replace(SMALL, num_rounds=2, eval_every=1, final_evals=2, seeds=[0, 1, 2])
    line = lambda seed, round, value: {"seed": seed, "round": round, "model": {"accuracy": value, "loss": value}}
    lines = [line(seed, round, 0.1 * (seed + 1)) for seed in (0, 1) for round in (0, 1, 2)] + [line(2, 0, 0.9)]
    results = {seed: Result(None, [], 1 if seed == 2 else None, 1.0, 0.0, (2, 1.0), 1) for seed in (0, 1, 2)}
    found = summaries.summarise(config, results, lines, "", 1)
    assert found["seeds"][2]["last"] is None
    accuracy = found["over_seeds"]["model"]["accuracy"]
    assert accuracy["mean"] == pytest.approx(0.15) and (accuracy["seeds"], accuracy["of_seeds"]) == (2, 3)
    assert "15.00 +- 7.07 (2 of 3 seeds)" in scores.summary_table({"fedavg": found})
