"""Multi-process runs: the same bits in every layout, also after a process is killed."""

import json
import signal
import time

import numpy as np
import pytest

import fedwin
from fedwin import multi_process
from fedwin.errors import UserError
from fedwin.files import InUse
from tests.runs.disturbance import assert_same_state, flags_of, free_port, started, wait_for
from tests.small_runs import finished_run, leaves, lines

SETTING = dict(
    partition="dirichlet:alpha=0", num_clients=20, model="digits_mlp", algorithm="scaffold", num_rounds=200,
    clients_per_round=3, batch_size=16, observe=["wima:window=20"], final_evals=20, checkpoint_every=20,
    rounds_per_dispatch=20,
)  # fmt: skip
# Seconds within which processes end whose companion was killed.
PATIENCE = 60


def slurm(process, count, port):
    """Returns the environment of a SLURM task on one node; jax derives a port above 61,439 from the job id."""
    words = dict(JOB_ID=port, STEP_NODELIST="localhost", NTASKS=count, PROCID=process, LOCALID=process)
    return {f"SLURM_{name}": str(value) for name, value in (words | dict(STEP_NUM_NODES=1)).items()}


class Processes:
    """Processes of a subcommand, each with some devices and flags of its `own`, that compute one run.

    With `cluster` they find each other by the variables that SLURM sets. Output is written next to the run's directory.
    """

    def __init__(self, count, directory, *, devices=1, own=None, program="train", cluster=False, **setting):
        port = free_port()
        self.said = [directory.parent / f"{directory.name}_{process}.txt" for process in range(count)]
        self.started = []
        for process, path in enumerate(self.said):
            address = [f"--coordinator_address=localhost:{port}", f"--num_processes={count}", f"--process_id={process}"]
            found_by, variables = (["--distributed"], slurm(process, count, port)) if cluster else (address, {})
            flags = [*found_by, *flags_of(SETTING | setting), *(own or {}).get(process, [])]
            with open(path, "w") as file:
                self.started.append(started(flags, directory, program, devices, stderr=file, **variables))

    def ended(self, timeout=300):
        """Waits for all; returns their exit statuses."""
        end = time.monotonic() + timeout
        return [process.wait(max(end - time.monotonic(), 0.1)) for process in self.started]

    def errors(self, process):
        """Returns the lines of a process besides its progress and the messages of C++ libraries."""
        lines = self.said[process].read_text().splitlines()
        return [line for line in lines if line.startswith(("error", "warning", "interrupted", "Traceback"))]


def assert_same_bits(one, other):
    assert lines(one) == lines(other)
    assert_same_state(one, other, SETTING["num_rounds"])


# By one process with two devices.
one_process = finished_run(fedwin.Config(**SETTING))


@pytest.mark.parametrize("raised", [InUse, UserError])
def test_errors_travel_between_processes_as_json(monkeypatch, raised):
    sent = []
    monkeypatch.setattr(multi_process, "count", lambda: 2)
    monkeypatch.setattr(multi_process, "all_gather_text", lambda text: sent.append(text) or ["", text])

    def refuse():
        raise raised("no 'such' file\u2026")

    with pytest.raises(raised, match="^no 'such' file"):
        multi_process.run_on_all(refuse)
    assert json.loads(sent[0]) == [raised.__name__, "no 'such' file\u2026"]
    monkeypatch.setattr(multi_process, "all_gather_text", lambda text: ["", sent[0]])
    with pytest.raises(raised, match="^process 1: no 'such' file"):
        multi_process.run_on_all(lambda: 3)


@pytest.mark.slow
def test_a_killed_process_ends_the_other_and_the_resumed_run_has_the_bits_of_one_process(one_process, tmp_path):
    directory = tmp_path / "run"
    killed = Processes(2, directory, table="host")
    wait_for(killed.started[0], directory, 0, 40)
    killed.started[1].kill()
    assert killed.ended(PATIENCE)[0] == 1
    (line,) = killed.errors(0)
    assert "another process of this run has ended; the same command" in line
    assert not (directory / "summary.json").exists()
    again = Processes(2, directory, table="host")
    assert again.ended() == [0, 0], again.errors(0) + again.errors(1)
    assert again.errors(0) == again.errors(1) == []
    assert_same_bits(one_process[0], directory)


@pytest.mark.slow
def test_two_processes_with_two_devices_resume_bitwise_after_four_lost_the_first(tmp_path):
    setting = dict(table="file", examples="stream", clients_per_round=6)
    whole = Processes(4, tmp_path / "whole", **setting)
    assert whole.ended() == [0] * 4, [whole.errors(process) for process in range(4)]
    killed = Processes(4, tmp_path / "run", **setting)
    wait_for(killed.started[0], tmp_path / "run", 0, 40)
    killed.started[0].kill()
    # Where process 0 is lost, jax's own thread may end the others.
    assert all(status in (-signal.SIGKILL, -signal.SIGABRT, 1) for status in killed.ended(PATIENCE))
    again = Processes(2, tmp_path / "run", devices=2, **setting)
    assert again.ended() == [0, 0], again.errors(0) + again.errors(1)
    assert_same_bits(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
def test_one_process_resumes_after_two_were_stopped(one_process, tmp_path):
    directory = tmp_path / "run"
    told = Processes(2, directory)
    wait_for(told.started[0], directory, 0, 40)
    told.started[1].send_signal(signal.SIGTERM)
    assert told.ended(PATIENCE) == [143, 143]
    assert "the same command resumes there" in told.errors(0)[-1]
    # This process has two devices, too.
    fedwin.run(fedwin.Config(**SETTING, out_dir=str(directory)), quiet=True)
    assert_same_bits(one_process[0], directory)


@pytest.mark.slow
def test_a_seed_stops_in_all_processes(one_process, tmp_path):
    stopped = Processes(2, tmp_path / "run", early_stopping="target:value=0.5,metric=accuracy")
    assert stopped.ended() == [0, 0], stopped.errors(0) + stopped.errors(1)
    reached = next(k for k, line in enumerate(lines(one_process[0])) if line["model"]["accuracy"] >= 0.5)
    assert reached < 20 and lines(tmp_path / "run") == lines(one_process[0])[: reached + 1]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 4])
def test_one_process_resumes_on_other_devices_up_to_rounding(one_process, tmp_path, devices):
    directory = tmp_path / "run"
    killed = Processes(2, directory)
    wait_for(killed.started[0], directory, 0, 40)
    killed.started[1].kill()
    killed.ended(PATIENCE)
    alone = Processes(1, directory, devices=devices)
    assert alone.ended() == [0], alone.errors(0)
    mine, theirs = (leaves(place, SETTING["num_rounds"]) for place in (directory, one_process[0]))
    for name, value in theirs.items():
        np.testing.assert_allclose(mine[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_a_sweep_of_two_processes_is_one_sweep(tmp_path):
    grid = {n: ["--grid=client_lr=0.05,0.1"] for n in (0, 1)}
    both = Processes(2, tmp_path / "sweep", own=grid, program="sweep", num_rounds=20)
    assert both.ended() == [0, 0], both.errors(0) + both.errors(1)
    assert len(list((tmp_path / "sweep").glob("*/summary.json"))) == 2 and (tmp_path / "sweep" / "sweep.csv").exists()


@pytest.mark.slow
def test_two_processes_reproduce_what_one_does(tmp_path):
    flags = ["ima/figure5", "--scale=smoke", "--afresh"]
    address = f"--coordinator_address=localhost:{free_port()}"
    layouts = {"one": [[]], "two": [[address, "--num_processes=2", f"--process_id={n}"] for n in (0, 1)]}
    found = {}
    for name, processes in layouts.items():
        layout = dict(devices=2 // len(processes), stdout=None, stderr=None)
        running = [started([*flags, *own], tmp_path / name, "reproduce", **layout) for own in processes]
        assert [process.wait(300) for process in running] == [0] * len(running)
        directories = sorted(path.parent for path in (tmp_path / name).rglob("metrics.jsonl"))
        found[name] = {path.relative_to(tmp_path / name): lines(path) for path in directories}
    assert len(found["one"]) == 2 and found["two"] == found["one"]  # a run, and the one with IMA that parts from it


def test_what_one_process_refuses_ends_all_with_one_line(tmp_path):
    both = Processes(2, tmp_path / "run", own={1: ["--client_lr=3"]}, cluster=True)
    assert both.ended() == [2, 2]
    for process in (0, 1):
        (line,) = both.errors(process)
        assert line.startswith("error: process 1 has --client_lr=3") and "give all processes the same flags" in line
    assert not (tmp_path / "run").exists()
