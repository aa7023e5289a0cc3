"""A smoke run of a table: trained once, resumed after an interruption, stored and redrawn without training."""

import dataclasses
import json
import os
import shutil

import pytest

from experiments import records
from experiments.papers.catalogue import item
from experiments.reproduction import numbers, results, runs, tables, work
from experiments.reproduction.results import Results
from fedwin.errors import UserError
from fedwin.files import locked


def cells(name, *rows):
    one = item(name)
    return [cell for cell in one.cells("smoke") if cell.row.name in rows and cell.column.name == one.columns[0].name]


def directories_of(name, folder, *rows):
    tasks = runs.plan([item(name)], "smoke", (0,), {name: cells(name, *rows)})
    return runs.run_directories(tasks, folder, "smoke")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """IMA's FedAvg with its fork, both trained, the first with an interruption: its budget was spent."""
    folder = tmp_path_factory.mktemp("papers")
    found = directories_of("ima/table1", folder, "fedavg")
    with pytest.raises(work.BudgetSpent):
        work.work(found[:1], budget=0.0, say=lambda line: None)
    assert not found[0].finished
    said = []
    assert work.work(found, say=said.append) == {} and len(said) == 2 and all(each.finished for each in found)
    assert work.work(directories_of("ima/table1", folder, "fedavg"), say=said.append) == {}
    assert len(said) == 2  # nothing is trained twice
    return folder, found


def test_a_forks_curve_continues_that_of_its_parent(trained):
    folder, (base, fork) = trained
    whole, parted = (results.curves(Results("smoke", folder), directory.task.run)[0] for directory in (base, fork))
    split = fork.task.run.parent.round
    assert 0 < split < fork.task.run.num_rounds
    assert parted.rounds[0] == 0 and parted.rounds[-1] == whole.rounds[-1]
    before = parted.rounds < split
    assert (parted.accuracy[before] == whole.accuracy[whole.rounds < split]).all()


def test_a_run_that_another_process_trains_is_left_to_it(trained, tmp_path, monkeypatch):
    _, (base, _) = trained
    (directory,) = directories_of("wima/table4", tmp_path, "fedavg")
    directory.path.mkdir(parents=True)
    said = []

    def released(line):
        said.append(line)
        if len(said) == 2:  # the other process has ended by now, with this run done
            shutil.copytree(base.path, directory.path, dirs_exist_ok=True)

    monkeypatch.setattr(work, "PATIENCE", 0.01)
    with locked(directory.path):
        assert work.work([directory], say=released) == {}
    assert directory.finished and len(said) == 2


def test_stored_runs_give_the_same_numbers(trained, tmp_path):
    folder, found = trained
    for expected in (True, False):
        assert [results.keep(each.task.run, each.path, tmp_path) for each in found] == [expected] * 2
    for cell in cells("ima/table1", "fedavg"):
        first, second = (numbers.value(Results("smoke", place), cell) for place in (folder, tmp_path))
        assert first.mean == pytest.approx(second.mean, abs=1e-3) and first.rounds == second.rounds
    for path in tmp_path.iterdir():
        record = records.read(path)
        assert record.about["strategy"] and record.about["fingerprint"] and record.about["versions"]["jax"]
        assert os.sep + "tmp" not in json.dumps(record.about) and list(record.seconds) == record.seeds == [0]
        assert len(record.stored["data"]["checksum"]) == 32 and record.stored["machine"] == results.machine()


def test_stored_runs_are_not_trained_again_unless_a_fork_needs_them(trained, tmp_path):
    _, (base, fork) = trained
    tasks = [base.task, fork.task]
    left = lambda planned, **more: [t.run.key for t in runs.without_stored(planned, Results("smoke", tmp_path), **more)]
    both = [task.run.key for task in tasks]
    assert left(tasks) == both
    results.keep(base.task.run, base.path, tmp_path)
    assert left(tasks) == both  # the fork resumes a checkpoint, which is not stored
    results.keep(fork.task.run, fork.path, tmp_path)
    assert left(tasks) == [] and left(tasks, analyzed=both[:1]) == both[:1]
    assert left([dataclasses.replace(base.task, reads={*base.task.reads, "wima:window=3"})]) == both[:1]


def test_an_edited_run_is_not_reported(trained, tmp_path):
    _, (base, _) = trained
    copy = tmp_path / "copy"
    shutil.copytree(base.path, copy)
    lines = (copy / "metrics.jsonl").read_text()
    (copy / "metrics.jsonl").write_text(lines.replace('"accuracy": 0.', '"accuracy": 1.', 1))
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        records.read(copy)


def test_the_table_is_written_next_to_the_printed_one(trained, tmp_path):
    folder, _ = trained
    own, one = Results("smoke", folder), item("ima/table1")
    found = [numbers.value(own, cell) for cell in cells("ima/table1", "fedavg")]
    tables.write(one, own, found, tmp_path)
    text = (tmp_path / "ima_table1.md").read_text()
    assert "Stand-in" in text and "81.17" not in text  # printed numbers are compared at paper scale alone
    at_paper = [dataclasses.replace(value, scale="paper") for value in found]
    text = tables.section(one, Results("paper", folder), at_paper)
    assert "81.17 / " in text and "84.68 / " in text
    rows = (tmp_path / "ima_table1.csv").read_text().splitlines()
    assert rows[0].startswith("row,column,variant") and len(rows) == 1 + len(found)
