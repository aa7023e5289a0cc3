"""Ctrl-C, SIGTERM and SIGKILL in real processes, and Ctrl-C in a call of `fedwin.run`."""

import signal
import subprocess
import time

import pytest

import fedwin
from fedwin import jax_config
from fedwin.runs.metrics_log import read_lines
from fedwin.runs.train import DispatchLength
from tests.runs import test_dry_run, test_processes
from tests.runs.disturbance import assert_same_outcome, flags_of, hears, killed_at, started, wait_until

FLAGS = (
    "--dataset=digits --num_clients=20 --partition=dirichlet:alpha=0 --clients_per_round=3 "
    "--model=digits_mlp:hidden=8 --strategy=chunked:k=1"
).split()


def until(process, text):
    """Reads stderr up to a line with a text; returns the lines."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError("".join(lines))


def test_sigterm_finishes_the_rounds_under_way_and_saves(tmp_path):
    flags = ("--num_rounds=100000", "--checkpoint_every=0", "--eval_every=1000")
    process = started([*FLAGS, *flags], tmp_path / "run")
    until(process, "compiled")
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    lines = [line for line in said.splitlines() if not line.startswith("seed 0: round")]
    assert len(lines) == 2 and "finishing" in lines[0] and "saved after round" in lines[1], said
    saved = int(lines[1].partition("after round ")[2].partition(",")[0])
    assert saved > 0 and (tmp_path / "run" / "checkpoints" / "seed_0" / f"{saved}").is_dir()


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_long_round_at_once(tmp_path):
    process = started([*FLAGS, "--num_rounds=50", "--local_epochs=9000", "--batch_size=10"], tmp_path / "run")
    until(process, "compiled")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    until(process, "finishing")
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert time.monotonic() - begun < 1
    assert process.returncode == 130
    assert said == "interrupted; the same command resumes from the last checkpoint.\n"
    rounds = [path.name for path in (tmp_path / "run" / "checkpoints" / "seed_0").iterdir() if path.name.isdigit()]
    assert rounds == ["0"]


def test_ctrl_c_while_it_imports_is_one_line(tmp_path):
    process = started(FLAGS, tmp_path / "run")
    wait_until(lambda: hears(process) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "interrupted.\n"
    assert process.returncode == 130 and not (tmp_path / "run").exists()


@pytest.mark.parametrize("per_round", [0.001, 0.4, 3.0, 25.0])
def test_dispatches_last_ten_seconds_at_most_unless_a_round_is_longer(per_round):
    length = DispatchLength(10**6, 10.0)
    planned = [1, length.next_rounds()]  # a dispatch is planned while the one before it runs
    for k in range(40):
        seconds = planned[k] * per_round * (1.4 if k % 3 == 1 else 1.0)  # some are slower
        assert seconds <= 10 or planned[k] == 1
        length.add(planned[k], seconds)
        planned.append(length.next_rounds())
    assert planned[-1] * per_round > 4 or per_round > 2


def test_killed_it_ends_with_the_same_bits(tmp_path):
    setting = test_processes.SETTING | {"num_rounds": 240, "checkpoint_every": 40, "seeds": [0, 1]}
    fedwin.run(fedwin.Config(**setting, out_dir=str(tmp_path / "whole")), quiet=True)  # with two devices, too
    process = started(flags_of(setting), tmp_path / "run")
    # The first seed has ended.
    assert killed_at(process, tmp_path / "run", 1, 80), "the run ended before it could be killed: give it more rounds"
    assert not (tmp_path / "run" / "summary.json").exists()
    process = started(flags_of(setting), tmp_path / "run", stdout=subprocess.PIPE)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0 and "resuming after round" in said, errors
    assert_same_outcome(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("times, said", [(1, "saved after round 2, the same call resumes there"), (2, "the same call")])
def test_ctrl_c_ends_a_call_in_one_line_and_the_same_call_resumes(tmp_path, capsys, monkeypatch, times, said):
    monkeypatch.setattr(jax_config, "unused_cores", lambda: 4)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    setting = test_dry_run.SMALL | dict(num_rounds=4, eval_every=1, checkpoint_every=0)
    config = fedwin.Config(**setting, out_dir=str(tmp_path / "run"))

    def interrupt(round, seed, readouts):
        for _ in range(times if round == 2 else 0):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=said) as caught:
        fedwin.run(config, quiet=True, on_eval=interrupt)
    assert len(caught.traceback) == 2 and caught.value._render_traceback_() == [f"KeyboardInterrupt: {caught.value}"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    seen = []
    summary = fedwin.run(config, on_eval=lambda round, seed, readouts: seen.append(round))
    assert seen and seen == ([3, 4] if times == 1 else [0, 1, 2, 3, 4][5 - len(seen) :])
    assert [line["round"] for line in read_lines(tmp_path / "run" / "metrics.jsonl")] == [0, 1, 2, 3, 4]
    assert repr(summary).startswith("run ")
    shown = [repr(fedwin.data.load("digits")), repr(fedwin.load(tmp_path / "run"))]
    assert "1,400 training and 397 test examples\n" in shown[0] and "round 4\n  fedavg on digits" in shown[1]
    assert "note: jax has one CPU device for 4 cores; fedwin.use_every_core() before" in capsys.readouterr().out
