"""Trackers: the numbers that they receive, that runs go on when they fail, and that a resumed run continues theirs."""

import dataclasses
import importlib
import importlib.util
import sys

import pytest

import fedwin
from fedwin.callbacks import TRACKERS, trackers
from fedwin.callbacks.trackers import Tracking, scalars, summary_values
from fedwin.runs import directory as directories
from tests.refusals import refused
from tests.small_runs import lines, placed, run_in, small

CONFIG = small(clients_per_round=2, final_evals=2)
# A module with the functions of W&B that records its calls, and fails where FAIL says.
FAKE = """
import threading
calls, FAIL = [], set()

class Run:
    def __init__(self, id):
        self.id, self.summary = id, {}
    def log(self, metrics, step=None):
        calls.append(("log", self.id, step, metrics))
        if "log" in FAIL:
            raise ConnectionError("no route to host")
        if "hang" in FAIL:
            threading.Event().wait()
    def finish(self):
        calls.append(("finish", self.id, dict(self.summary)))

def init(project=None, entity=None, name=None, id=None, group=None, config=None, resume=None, reinit=None, mode=None):
    calls.append(("init", id, dict(project=project, name=name, group=group, resume=resume, reinit=reinit), config))
    if "init" in FAIL:
        raise SystemExit("no account")
    return Run(id)
"""


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "wandb.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    return importlib.import_module("wandb")


def line(round, seed=0, accuracy=0.5):
    read_outs = {"model": {"accuracy": accuracy, "loss": float("nan")}, "ema": {"accuracy": 0.25}}
    return {"seed": seed, "round": round, **read_outs, "train_loss": None, "bytes_down": 8, "seconds": 1.5}


SUMMARY = {"final_round": 4, "diverged_at": None, "wall_seconds": 2.0, "rounds_per_second": None, "evaluations": 1}
SUMMARY |= {"last": {"model": {"accuracy": 0.5}}, "seed": 0}


def track(path, *events, choice="wandb:project=mine", seeds=(0,), finish=True, again=False):
    config = {"algorithm": "fedavg", "fingerprint": "0123456789ab"}
    sent = Tracking(trackers.build_all([choice]), path / "run", config)
    for event in events:
        sent.line(event)
    if finish:
        sent.summary({"seeds": {seed: SUMMARY for seed in seeds}}, again)
    sent.close()


def named(wandb, kind):
    return [call for call in wandb.calls if call[0] == kind]


def test_a_tracker_receives_flags_evaluations_and_the_summary_and_a_later_process_continues(tmp_path, wandb):
    track(tmp_path, line(0), line(0, seed=1), line(2), line(4, seed=1), seeds=(0, 1))
    (_, first, about, config), (_, second, *_) = named(wandb, "init")
    assert (about["project"], about["group"], about["resume"]) == ("mine", "run", "allow")
    assert (first, second) == ("run-seed0-01234567", "run-seed1-01234567") and about["name"] == first
    assert config == {"algorithm": "fedavg", "fingerprint": "0123456789ab", "seed": 0}
    steps = [(id, step) for _, id, step, _ in named(wandb, "log")]
    assert steps == [(first, 0), (second, 0), (first, 2), (second, 4)]
    expected = {"model/accuracy": 0.5, "ema/accuracy": 0.25, "bytes_down": 8.0, "seconds": 1.5}
    assert named(wandb, "log")[0][3] == dict(scalars(line(0))) == expected
    numbers = {"final_round": 4.0, "wall_seconds": 2.0, "evaluations": 1.0, "model/accuracy": 0.5}
    assert named(wandb, "finish")[0][2] == summary_values(SUMMARY) == {f"summary/{k}": v for k, v in numbers.items()}
    track(tmp_path, line(6), finish=False)
    assert named(wandb, "init")[-1][1] == first and named(wandb, "finish")[-1] == ("finish", first, {})
    # The process that ends the run sends the summaries of all seeds, a later one none.
    for again in (False, True):
        track(tmp_path, *[line(6, seed=1)] * (not again), seeds=(0, 1), again=again)
        assert named(wandb, "finish")[3:] == [("finish", seed, summary_values(SUMMARY)) for seed in (first, second)]


@pytest.mark.parametrize(
    "fails, reason, logged",
    [
        ("log", "ConnectionError.*no route to host", 1),
        ("init", "SystemExit.*no account", 0),
        ("hang", "TimeoutError.*no answer within 0.5 seconds", 1),
    ],
)
def test_a_tracker_that_raises_or_hangs_warns_once_and_is_left_out(tmp_path, wandb, monkeypatch, fails, reason, logged):
    monkeypatch.setattr(trackers, "LIMIT", 0.5)
    wandb.FAIL.add(fails)
    with pytest.warns(UserWarning, match=rf"track=wandb:project=mine: {reason}. The run continues") as caught:
        track(tmp_path, line(0), line(2), line(4))
    assert len(caught) == 1 and len(named(wandb, "log")) == logged


def test_a_tracker_given_twice_and_a_missing_package_are_refused(wandb, monkeypatch):
    refused("track=wandb is given twice; keep one", fedwin.check, dataclasses.replace(CONFIG, track=["wandb", "wandb"]))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for tracker in TRACKERS:
        words = f"track={tracker}: the package '{tracker}' is not installed; pip install"
        refused(words, trackers.build_all, [tracker])


@pytest.mark.slow
def test_a_run_with_a_failing_tracker_keeps_every_bit(tmp_path, wandb):
    """And its hash: trackers may be added and left out when a run resumes."""
    assert directories.default_directory(dataclasses.replace(CONFIG, track=["wandb"])) == (
        directories.default_directory(CONFIG)
    )
    config = placed(CONFIG, tmp_path / "tracked", track=["wandb"])
    plain = fedwin.run(config, quiet=True)
    assert [step for _, _, step, _ in named(wandb, "log")] == [0, 2, 4, 5, 6]
    assert named(wandb, "finish")[0][2]["summary/final_round"] == 6
    wandb.FAIL.add("log")
    with pytest.warns(UserWarning, match="track=wandb"):
        failing = run_in(config, tmp_path / "failing")
    assert lines(tmp_path / "tracked") == lines(tmp_path / "failing")
    assert failing["over_seeds"] == plain["over_seeds"] and failing["fingerprint"] == plain["fingerprint"]


@pytest.mark.slow
def test_trackio_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="pip install 'fedwin[trackio]'")
    for name in [name for name in sys.modules if name.partition(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, name)  # it reads the variable when it is imported
    track(tmp_path, line(0), line(0, seed=1), line(2), choice="trackio:project=mine", finish=False)
    track(tmp_path, line(4, accuracy=0.75), choice="trackio:project=mine")
    storage = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    assert sorted(storage.get_runs("mine")) == ["run-seed0-01234567", "run-seed1-01234567"]
    logs = storage.get_logs("mine", "run-seed0-01234567")
    steps = {entry["step"]: entry["model/accuracy"] for entry in logs if "model/accuracy" in entry}
    assert steps == {0: 0.5, 2: 0.5, 4: 0.75}
    assert [entry["summary/final_round"] for entry in logs if "summary/final_round" in entry] == [4.0]


@pytest.mark.slow
def test_mlflow_itself(tmp_path, monkeypatch):
    uri = str(tmp_path / "mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="pip install 'fedwin[mlflow]'")
    choice = f'mlflow:experiment=mine,uri="{uri}"'
    track(tmp_path, line(0), line(2), choice=choice, finish=False)
    track(tmp_path, line(4, accuracy=0.75), choice=choice)
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    history = client.get_metric_history(run.info.run_id, "model/accuracy")
    assert sorted((metric.step, metric.value) for metric in history) == [(0, 0.5), (2, 0.5), (4, 0.75)]
    assert run.data.params["algorithm"] == "fedavg" and run.data.metrics["summary/final_round"] == 4.0
    assert run.info.status == "FINISHED" and run.data.tags["group"] == "run"
