"""Launchers: what runs, waits, fails and is left; and (slow) runs through submitit that are killed and continued."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from experiments import launching as jobs
from experiments import runs
from experiments.papers.remarks import lines_of
from experiments.tables import grid
from fedwin.files import locked, write_json
from fedwin.launching import launchers
from fedwin.runs.config import Config
from tests.misuse import calls
from tests.refusals import refused
from tests.runs.disturbance import wait_until

FLAGS = f"{calls.SMALL} --num_rounds=40 --eval_every=4 --checkpoint_every=4"


class Pretending(launchers.Launcher):
    """Ends one job per look: with a summary, or with what `ends` says in its output; records what was submitted."""

    pause = 0.0

    def __init__(self, most=2, ends=(), before=()):
        self.jobs, self.ends, self.running, self.submitted, self.most_at_once = most, dict(ends), list(before), [], 0

    def submit(self, works):
        for work in works:
            place = pathlib.Path(work.log.parent.parent, work.log.stem)
            self.submitted.append(place.name)
            self.running.append(place.name)
            assert not work.log.exists()
            if place.name in self.ends:
                work.log.write_text(self.ends.pop(place.name))
            else:
                finish(place)
        self.most_at_once = max(self.most_at_once, len(self.running))
        return [work.log.stem for work in works]

    def alive(self, ids):
        self.running = self.running[1:]
        return {name for name in ids if name in self.running}


def finish(place):
    place.mkdir(exist_ok=True)
    (place / "summary.json").write_text("{}")


@pytest.fixture
def four(tmp_path):
    """Directory -> job of four runs."""
    return {tmp_path / name: jobs.Job(name, Config(out_dir=str(tmp_path / name))) for name in "abcd"}


def test_jobs_run_some_at_a_time_and_one_that_fails_holds_nobody(four, tmp_path, capsys):
    ends = {"a": "started\nerror: no memory.\n", "b": "Killed\n", "c": "error: c is in use by process 1\n"}
    launcher = Pretending(ends=ends)
    failed = jobs.launch(launcher, four, tmp_path)
    assert {path.name: line for path, line in failed.items()} == {
        "a": "no memory.",
        "b": f"it died; the end of {tmp_path}/jobs/b.log: Killed",
    }
    assert launcher.most_at_once == 2 and sorted(launcher.submitted) == ["a", "b", "c", "c", "d"]
    assert capsys.readouterr().out.splitlines()[1] == "[1/4] a: failed: no memory."
    assert jobs.entries(tmp_path) == {path.name: {"failed": line} for path, line in failed.items()}
    refused(r"2 run\(s\) failed, the first: .*/a: no memory; the same command tries", jobs.conclude, failed)
    again = Pretending()
    assert jobs.launch(again, {path: four[path] for path in failed}, tmp_path) == {} and again.submitted == ["a", "b"]


def test_states_are_read_from_the_folders(four, tmp_path):
    ends = {"a": "error: no memory.\n"}
    jobs.launch(Pretending(ends=ends), {tmp_path / name: four[tmp_path / name] for name in "ab"}, tmp_path)
    entries = {"a": {"failed": "no memory."}, "b": {"id": "1"}, "c": {}, "d": {"id": "2"}}
    write_json(tmp_path / "jobs" / "jobs.json", entries)
    config = {"config": {"seeds": [0, 1], "algorithm": "fedavg", "dataset": "digits", "num_rounds": 10}}
    for name in "bde":
        (tmp_path / name).mkdir(exist_ok=True)
        write_json(tmp_path / name / "config.json", config)
    lines = [{"seed": s, "round": r, "seconds": r / 2} for s, r in ((0, 0), (0, 6), (1, 4))]
    (tmp_path / "d" / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    jobs_of = lambda: {place.name: run["state"] for place, run in runs.states((str(tmp_path),)).items()}
    with locked(tmp_path / "d"), locked(tmp_path / "jobs"):
        states = jobs_of()
        shown = calls.called("list", "runs", "--state", str(tmp_path)).out
    assert states.pop("d") == "running: round 4 of seed 1, 2 rounds/s, 3 s left" and "s, 3 s left\n" in shown
    assert states == {"a": "failed: no memory.", "b": "ended", "c": "queued", "e": "stopped"}
    (tmp_path / "e" / "metrics.jsonl").write_text("{\n{}\n")  # and the launcher has ended: d alone is in a queue
    assert jobs_of() == states | {"c": "stopped", "d": "queued", "e": "damaged"}
    with locked(tmp_path / "e"):
        assert jobs_of()["e"] == "damaged"
    calls.refused(tmp_path, "error: --state has no effect with models", "list", "models", "--state")


def test_what_others_train_or_queued_is_not_submitted_again(four, tmp_path, monkeypatch):
    """b is in the queue of an earlier process, c in another process, which ends it while this one waits."""
    jobs.launch(Pretending(), {}, tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "jobs.json").write_text('{"b": {"id": "b"}, "z": {"id": "gone"}}')
    launcher, held = Pretending(most=4, before=["", "", "b"]), contextlib.ExitStack()
    (tmp_path / "c").mkdir()
    held.enter_context(locked(tmp_path / "c"))

    def while_waiting(seconds):
        if seconds == launcher.pause:
            finish(tmp_path / "b")
            finish(tmp_path / "c")
            held.close()

    monkeypatch.setattr(jobs.time, "sleep", while_waiting)
    assert jobs.launch(launcher, four, tmp_path) == {} and launcher.submitted == ["a", "d"]


def test_a_run_that_outlives_its_job_is_waited_for(four, tmp_path, monkeypatch):
    """The job of a is gone at the second look, its run ends before the fourth."""
    place, held, launcher, looks = tmp_path / "a", contextlib.ExitStack(), Pretending(ends={"a": "Killed\n"}), []

    def while_waiting(seconds):
        looks.append(seconds == launcher.pause)  # not those of a lock
        if sum(looks) == 1 and not place.exists():
            place.mkdir()
            held.enter_context(locked(place))
        elif sum(looks) == 3:
            finish(place)
            held.close()

    monkeypatch.setattr(jobs.time, "sleep", while_waiting)
    assert jobs.launch(launcher, {place: four[place]}, tmp_path) == {} and launcher.submitted == ["a"]


def test_a_second_launcher_and_a_run_without_its_parent_are_lines(four, tmp_path):
    with locked(tmp_path / "jobs") if (tmp_path / "jobs").mkdir() is None else None:
        refused("jobs is in use by", jobs.launch, Pretending(), four, tmp_path)
    later = jobs.Job("e", Config(), ready=lambda: False)
    failed = jobs.launch(Pretending(), four | {tmp_path / "e": later}, tmp_path)
    assert failed.keys() == {tmp_path / "e"} and "its run has not ended, or diverged" in failed[tmp_path / "e"]


def test_printed_commands_are_those_of_the_runs(tmp_path):
    """One line each, which a shell splits into the flags; none for a run that has ended."""
    folder = tmp_path / 'it\'s a "folder" $HOME {} %'
    arguments = [*shlex.split(FLAGS), f"--out_dir={folder}", "--grid=algorithm=fedavg;fedprox:mu=0.1", "--print_jobs"]
    ended = calls.called("sweep", *arguments, "--grid=wrap=none;ima:window=2,start=1")
    lines = [shlex.split(line) for line in ended.out.splitlines()]
    assert ended.status == 0 and len(lines) == 4 and not folder.exists(), ended.lines
    assert all(line[:3] == [sys.executable, "-m", "experiments.train"] for line in lines)
    point = {"algorithm": "fedprox:mu=0.1", "wrap": ["ima:window=2,start=1"]}
    assert f"--out_dir={folder / grid.directory_name(point)}" in lines[-1] and "--algorithm=fedprox:mu=0.1" in lines[-1]
    calls.refused(tmp_path, "all of --seeds", "sweep", *arguments, "--grid=seeds=1")
    broken = ["--methods=fedavg", f"--out_dir={tmp_path}/a\nb", "--print_jobs", *FLAGS.split()]
    calls.refused(tmp_path, "line break", "compare", *broken)


@pytest.mark.parametrize(
    "flags, line",
    [
        (["--launcher=locale"], r"unknown launcher 'locale'"),
        (["--launcher=slurm:time=2"], r"launcher=slurm:time=2 is not a time limit; write 20m, 2h or 1d\."),
        (["--launcher=local", "--print_jobs"], r"--launcher has no effect with --print_jobs"),
        (["--launcher=local", "--dry_run"], r"--launcher has no effect with --dry_run"),
        (["--launcher=local", f"--out_dir={__file__}/runs"], r"can't be made \(Not a directory\); choose another"),
        (["--print_jobs", "--search=optuna", "--grid=batch_size=8,9"], r"start its command in several|not installed"),
    ],
)
def test_a_launcher_that_can_not_be_used_is_one_line(flags, line, tmp_path):
    ended = calls.called("sweep", "--grid=client_lr=0.1", f"--out_dir={tmp_path}", *flags)
    assert ended.status == 2 and len(ended.lines) == 1 and re.search(line, ended.lines[0]), ended.lines


def test_without_its_package_a_launcher_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    refused(r"'submitit' is not installed; pip install 'fedwin\[cluster\]'", launchers.LAUNCHERS.build, "local:jobs=3")


def test_a_job_ends_with_the_process_that_started_it(tmp_path):
    """Its command receives SIGTERM, as before the end of its time."""
    code = "import signal, time; signal.signal(15, lambda *_: exit(print('saved'))); print('ready'); time.sleep(60)"
    log = tmp_path / "log"
    work = f"Work([{sys.executable!r}, '-u', '-c', {code!r}], pathlib.Path({str(log)!r}), {{'PYTHONHOME': None}})"
    start = f"import pathlib; from fedwin.launching.work import Work; {work}()"
    parent = subprocess.Popen([sys.executable, "-c", start])
    wait_until(lambda: log.is_file() and log.read_text() == "ready\n")
    parent.kill()
    parent.wait()
    wait_until(lambda: log.read_text() == "ready\nsaved\n")


def table(folder):
    """sweep.csv without times and directories."""
    return [row | {"rounds_per_second": "", "command": ""} for row in lines_of(folder / "sweep.csv")]


@pytest.mark.slow
def test_killed_runs_continue_to_the_same_table(tmp_path):
    """The launcher is killed, then a job, then the launcher is interrupted; then one is left to xargs."""
    pytest.importorskip("submitit")
    axes = ["--grid=client_lr=0.1,0.3", "--grid=algorithm=fedavg,scaffold"]
    command = [sys.executable, "-m", "experiments.sweep", *shlex.split(FLAGS), *axes]
    subprocess.run([*command, f"--out_dir={tmp_path}/here"], check=True, capture_output=True)
    there = tmp_path / "there"
    launch = [*command, f"--out_dir={there}", "--launcher=local:jobs=2"]
    running = lambda: [line for line in there.glob("*/metrics.jsonl") if line.stat().st_size]
    process = subprocess.Popen(launch)
    wait_until(running)
    process.kill()
    process = subprocess.Popen(launch)
    wait_until(lambda: len(running()) > 1)
    holder = running()[1].with_name(".lock").read_text().split()[1]
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(holder), signal.SIGKILL)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    printed = subprocess.run([*command, f"--out_dir={there}", "--print_jobs"], check=True, capture_output=True).stdout
    assert 0 < len(printed.splitlines()) <= 4
    subprocess.run(["xargs", "-d", "\n", "-I{}", "sh", "-c", "{}"], input=printed.splitlines(True)[0], check=True)
    shutil.rmtree(there / "jobs")  # nothing in it decides
    subprocess.run(launch, check=True)
    assert table(there) == table(tmp_path / "here")
