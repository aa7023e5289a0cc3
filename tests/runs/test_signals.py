"""Ctrl-C and SIGTERM in real processes."""

import signal
import time

import pytest

from fedwin.runs.train import DispatchLength
from tests.runs.disturbance import hears, started

FLAGS = (
    "--dataset=digits",
    "--num_clients=20",
    "--partition=dirichlet:alpha=0",
    "--clients_per_round=3",
    "--model=digits_mlp:hidden=8",
    "--strategy=chunked:k=1",
)


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
    while process.poll() is None and not hears(process):
        time.sleep(0.005)
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
