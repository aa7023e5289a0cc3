"""The journal of a run: metrics.jsonl, TensorBoard events, and which evaluations the means of a summary cover."""

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from experiments.tables import comparison
from fedwin import sampling
from fedwin.callbacks import scores
from fedwin.core import Mean
from fedwin.engine.strategy import Strategy
from fedwin.runs.config import Config
from fedwin.runs.journal import DispatchOutcome, Journal, summarize
from fedwin.runs.metrics_log import MetricsLog, read_lines
from fedwin.runs.schedule import Attendance, CohortSchedule, Schedule
from fedwin.runs.seeds import GroupJournal


def line(seed, round):
    model = {"accuracy": 0.5, "loss": float("nan")}
    return {"seed": seed, "round": round, "model": model, "train_loss": None, "seconds": 1.0}


def events(directory, seed):
    found = []
    for path in sorted((directory / "tensorboard" / f"seed_{seed}").glob("events*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
            found += [(value.tag, event.step) for value in event.summary.value]
            at += 16 + length
    return found


def test_lines_are_truncated_by_seed_and_round_and_incomplete_ones_removed(tmp_path):
    book = MetricsLog(tmp_path)
    book.truncate_after(0, -1)
    for round in (5, 10, 15):
        book.write(line(0, round))
        assert read_lines(book.path)[-1]["round"] == round == events(tmp_path, 0)[-1][1]  # who watches a run sees both
        book.flush()  # closes the files, which the next line opens again
    book.truncate_after(1, -1)
    book.write(line(1, 5))
    book.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"seed": 1, "round": 10, "mod')  # a kill in the middle of a write
    book = MetricsLog(tmp_path)
    book.truncate_after(0, 10)
    book.truncate_after(1, 5)
    book.write(line(1, 10))
    book.close()
    found = [(line["seed"], line["round"]) for line in read_lines(tmp_path / "metrics.jsonl")]
    assert found == [(0, 5), (0, 10), (1, 5), (1, 10)]
    assert [step for tag, step in events(tmp_path, 0) if tag == "model/accuracy"] == [5, 10]
    assert [step for tag, step in events(tmp_path, 1) if tag == "model/accuracy"] == [5, 10]


def journal(sampler=sampling.uniform_sampler(4, 1), stop=True, **ends):
    cohorts = CohortSchedule(None, Schedule(Config(num_rounds=10)), Strategy(), 0, sampler)
    return Journal(0, Attendance(cohorts), saved=ends, stop=stop)


def evaluations(rounds, seed=0):
    return [{"seed": seed, "round": r, "model": {"accuracy": r / 10, "loss": 1.0 - r / 10}} for r in rounds]


@pytest.mark.parametrize("final_evals", [4, 100])
def test_the_untrained_model_counts_in_no_mean(final_evals):
    config = Config(num_rounds=4, final_evals=final_evals)
    summary = summarize(config, {0: journal()}, evaluations(range(5)), "f", 1)
    assert summary["over_seeds"]["model"]["accuracy"]["mean"] == pytest.approx(0.25)
    assert summary["over_seeds"]["model"]["accuracy"]["final"] == pytest.approx(0.4)
    assert summary["last_rounds"] == summary["evaluations"] == summary["seeds"][0]["evaluations"] == 4


@pytest.mark.parametrize("completed, where", [(4, ""), (9, " after round 4")])
def test_a_progress_line_says_of_which_round_its_accuracy_is(completed, where):
    found = journal()
    found.loss = 0.25
    assert found.progress_note(completed) == "train loss 0.2500"
    found.latest = evaluations([4])
    assert found.progress_note(completed) == f"train loss 0.2500  accuracy{where}: model 0.4000"


def test_a_fork_does_not_count_its_first_evaluation_which_is_of_its_parents_model():
    config = Config(num_rounds=4, final_evals=100, fork_from="a@2")
    summary = summarize(config, {0: journal()}, evaluations([2, 3, 4]), "f", 1)
    assert summary["over_seeds"]["model"]["accuracy"]["mean"] == pytest.approx(0.35)
    assert scores.last_rounds(summary) == "the last 2 of 4 rounds (2 evaluations)"


def test_clients_that_report_no_loss_have_none():
    found = journal()
    found.record(0, DispatchOutcome({}, {"model": {"loss": np.ones(1)}}, np.ones(1, bool), 1))
    assert found.latest[0]["train_loss"] is None and found.diverged_at is None


def test_empty_rounds_are_those_until_a_seed_ends():
    """The second of ten rounds alone has a client, and diverges; other seeds of the group train on."""
    sampler = sampling.Sampler(lambda seed, round: np.arange(int(round == 1)), 4, 1, 0, 0.5)
    found = journal(sampler)
    group, loss = GroupJournal({0: found}, None, None, None, {}), np.array([[np.nan], [np.inf], [np.nan]])
    group.record(0, DispatchOutcome({"loss": Mean(loss, np.ones_like(loss))}, {}, np.zeros(3, bool), 3))
    assert (found.end, found.attendance.empty_rounds) == (2, 1)
    group.saved_extra(9)
    assert found.attendance.empty_rounds == 1


def test_a_seed_diverges_once_and_dispatches_that_compile_do_not_count_in_the_speed():
    found, loss = journal(stop=False), Mean(np.full(3, np.nan), np.ones(3))
    outcome = DispatchOutcome({"loss": loss}, {}, np.zeros(3, bool), 3, seconds=2.0)
    found.record(4, outcome)
    found.record(7, outcome._replace(compiling=1.0))
    assert found.diverged_at == 5 and found.steady == (3, 2.0) and found.seconds == 4.0


def test_diverged_seeds_are_in_no_mean_and_in_no_final_value():
    config = Config(num_rounds=4, final_evals=2, seeds=[0, 1, 2])
    lines = evaluations(range(5)) + evaluations(range(2), seed=1) + evaluations(range(5), seed=2)
    for line in lines:
        line["model"]["accuracy"] += 0.1 * (line["seed"] == 2)
    summary = summarize(config, {0: journal(), 1: journal(diverged_at=1), 2: journal()}, lines, "f", 1)
    accuracy = summary["over_seeds"]["model"]["accuracy"]
    assert summary["seeds"][1]["last"] is None and "not finite" in summary["seeds"][1]["divergence"]
    assert (accuracy["mean"], accuracy["final"]) == (pytest.approx(0.4), pytest.approx(0.45))
    assert (accuracy["seeds"], accuracy["of_seeds"]) == (2, 3)
    found = scores.summary_table({"fedavg": summary})
    assert "40.00 +- 7.07 (2 of 3 seeds)" in found and "0.6500 +- 0.0000 (2 of 3 seeds)" in found


@pytest.mark.parametrize("stops", [{0: 1, 1: None}, {0: None, 1: 1}])
def test_a_seed_may_be_stopped_before_its_clients_are_evaluated(stops):
    config = Config(num_rounds=4, final_evals=1, seeds=[0, 1])
    lines = [line for seed, end in stops.items() for line in evaluations(range((end or 4) + 1), seed)]
    for line in lines:
        if line["round"] == 4:
            line["clients"], line["model"]["client_accuracy_mean"] = "digest", 0.5
    results = {seed: journal(stopped_at=end) for seed, end in stops.items()}
    summary = summarize(config, results, lines, "f", 1)
    found = summary["over_seeds"]["model"]
    assert (found["client_accuracy_mean"]["mean"], found["client_accuracy_mean"]["seeds"]) == (0.5, 1)
    assert found["accuracy"]["seeds"] == 2
    finished = next(seed for seed, end in stops.items() if end is None)
    assert [s for s, each in summary["seeds"].items() if each.get("client_evaluations") == 1] == [finished]
    assert comparison.by_seed(summary, "model", "client_accuracy_mean") == {0: None, 1: None} | {finished: 0.5}
    assert scores.final(summary, "model", "client_accuracy_mean") == 0.5
