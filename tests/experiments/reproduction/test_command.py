"""The command line, hours of the queue and of dry runs, and stored runs trained again."""

import re
import types

import pytest

from experiments import reproduce
from experiments.papers.catalogue import item
from experiments.records import Record
from experiments.reproduction import command, results
from experiments.reproduction.request import Request
from experiments.reproduction.runs import lineage
from fedwin.runs.timing import Timing
from tests.experiments.reproduction.fakes import RUN, Fake, record
from tests.misuse import calls
from tests.refusals import refused


@pytest.mark.parametrize(
    "line, problem",
    [
        ("--list --seeds=1", "--seeds has no effect on --list"),
        ("--list wima/table2", "--list takes no table or figure"),
        ("--queue --scale=trend", "--scale has no effect on --queue"),
        ("--page --data_dir=x", "--data_dir has no effect on --page"),
        ("wima/table2 --row=fedavg", "--row has no effect on training"),
        ("wima/table2 --from_results --keep", "--keep has no effect on --from_results"),
        ("wima/table2 --scale=trend --rows=fedavg --keep --page", ""),
        ("--queue --budget=8h --keep --data_dir=x --page", ""),
        ("wima/table2 --print_flags --scale=trend", ""),
        ("--page", ""),
    ],
)
def test_flags_without_effect_are_refused(line, problem):
    with calls.own_flags():
        reproduce.define_flags()
        names = reproduce.FLAGS(["fedwin reproduce", *line.split()])[1:]
        if problem:
            refused(problem, reproduce.check_flags, names)
        else:
            reproduce.check_flags(names)


def test_hours_of_the_queue_are_those_of_the_stored_runs():
    stored, done = results.stored("paper"), command.QUEUE[0]
    runs = {run.key: run for cell in done.cells() for run in lineage(cell.runs[0])}
    seconds = sum(stored.seconds(run)[2023] for run in runs.values())
    assert len(runs) == 4 and command.duration(done, stored) == f"{seconds / 3600:.1f} h"
    assert command.progress(done, stored) == (6, 6)
    waiting = next(step for step in command.QUEUE if command.progress(step, stored)[0] == 0)
    assert command.duration(waiting, stored).startswith("about ")
    assert command.duration(command.QUEUE[-1], stored) == "GPU"


def test_a_dry_run_times_a_kind_of_run_once_and_nothing_that_is_stored(monkeypatch, capsys):
    task = types.SimpleNamespace(run=RUN)
    directory = types.SimpleNamespace(task=task, rounds_left=lambda: 10, completed=lambda: [10])
    estimates = command._Estimates("trend")
    estimates.stored = Fake({"": None})
    config = RUN.config(dataset="digits")
    timed = []
    required = types.SimpleNamespace(timing=Timing(1.0, 10.0, 0.5))
    monkeypatch.setattr(command, "in_all_processes", lambda *given: timed.append(given) or required)
    for _ in range(2):  # rounds 15, 18, 19 and 20 are evaluated
        assert estimates.left(directory, config) == 10 + 10 * 1.0 + 4 * 0.5
    assert len(timed) == 1 and "timing a few rounds of fedavg on digits" in capsys.readouterr().err
    estimates.stored = Fake({RUN.key: record(machine=results.machine())})
    assert estimates.left(directory, config) == 18.0 and len(timed) == 1


@pytest.mark.parametrize("seeds, part", [((), ""), ((0, 99), " for 2 of 4 runs of a seed")])
def test_the_first_line_says_what_is_stored_and_a_dry_run_lists_it(seeds, part, monkeypatch, tmp_path, capsys):
    table = item("wima/table4")
    monkeypatch.setattr(command, "run_table", lambda directories, request: f"{len(directories)} runs")
    command.execute(Request(out_dir=tmp_path, dry_run=True, seeds=seeds), [table], {table.name: table.cells("trend")})
    line = rf"stored results of [-\d to]+{part}; --afresh trains \(about \d+ (min|s)\)\n2 runs\n"
    assert re.fullmatch(line, capsys.readouterr().out)


# --verify

CONFIG = {"algorithm": "fedavg", "dataset": "digits", "partition": "iid", "num_rounds": 6, "final_evals": 2}


def again(*accuracies, first=4):
    """Compares a stored run with accuracies of 0.1, 0.2 and 0.3 in its last rounds with one trained again."""

    def of(first, accuracies):
        lines = [{"round": first + n, "seed": 0, "model": {"accuracy": a}} for n, a in enumerate(accuracies)]
        return Record({"config": CONFIG}, [line | {"ema": {"accuracy": 0.5}} for line in lines])

    return command.compare(of(4, (0.1, 0.2, 0.3)), of(first, accuracies), seed=0)


def test_rounded_numbers_are_equal_and_means_within_a_point_agree():
    readout, means, _, verdict = again(0.100004, 0.2, 0.299996)
    assert verdict == "equal" and readout == "model"
    assert means == pytest.approx((25.0, 24.9998))  # rounds 5 and 6 of 6
    _, _, largest, verdict = again(0.1, 0.19, 0.3)
    assert verdict == "agrees" and largest == pytest.approx(1) and again(0.1, 0.23, 0.3)[-1] == "differs"
    assert again(0.2, 0.3, first=5)[-1] == "agrees"  # an evaluation is missing


def test_candidates_are_the_stored_seeds_of_an_item(tmp_path):
    table = item("survey/table3")
    found = command.candidates([table], "trend")
    assert {seed for _, _, seed in found} == {0, 1, 2, 3, 4}
    assert {task.run.key for task, _, _ in found} <= {cell.runs[0].key for cell in table.cells("trend")}
    refused("no run of scale smoke is stored", command.verify, [table], 3, Request(scale="smoke", out_dir=tmp_path))


@pytest.mark.slow
def test_a_stored_run_is_trained_again(tmp_path):
    text = command.verify([item("survey/figure1")], 1, Request(out_dir=tmp_path))
    assert "| equal |" in text or "| agrees |" in text


def test_the_commands_of_runs_are_printed(tmp_path):
    """Those of the rows that are named; a fork later, once its parent has ended."""
    arguments = ["wima/table2", "--scale=smoke", "--rows=fedavg", "--seeds=0", "--afresh", f"--out_dir={tmp_path}"]
    ended = calls.called("reproduce", *arguments, "--print_jobs")
    assert ended.status == 0 and ended.out and all("experiments.train --dataset=" in x for x in ended.out.splitlines())
    unused = "error: --budget has no effect with a launcher"
    calls.refused(tmp_path, unused, "reproduce", *arguments, "--print_jobs", "--budget=2h")
