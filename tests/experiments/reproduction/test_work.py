"""A smoke run of a table: trained once, resumed after an interruption, stored and redrawn without training."""

import dataclasses
import json
import os
import shutil

import pytest

from experiments.papers.catalogue import item
from experiments.reproduction import plan, store, values, work, write
from fedwin.errors import UserError
from fedwin.files import locked


def cells(name, *rows):
    one = item(name)
    return [cell for cell in one.cells("smoke") if cell.row.name in rows and cell.column.name == one.columns[0].name]


def directories_of(name, out_dir, *rows):
    one = item(name)
    return plan.run_directories(plan.plan([one], "smoke", (0,), {name: cells(name, *rows)}), out_dir, "smoke")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """IMA's FedAvg with its fork, both trained, the first with an interruption: its budget was spent."""
    out_dir = tmp_path_factory.mktemp("papers")
    found = directories_of("ima/table1", out_dir, "fedavg")
    with pytest.raises(work.BudgetSpent):
        work.work(found[:1], budget=0.0, say=lambda line: None)
    assert not found[0].finished
    outcome = work.work(found, say=lambda line: None)
    assert outcome.trained == found and len(found) == 2 and not outcome.refused
    return out_dir, found


def test_nothing_is_trained_twice(trained):
    out_dir, _ = trained
    outcome = work.work(directories_of("ima/table1", out_dir, "fedavg"), say=lambda line: None)
    assert not outcome.trained and len(outcome.finished) == 2


def test_a_forks_curve_continues_that_of_its_parent(trained):
    out_dir, (base, fork) = trained
    where = store.LocalResults(out_dir, "smoke")
    whole, parted = (store.curves(where, directory.task.run)[0] for directory in (base, fork))
    split = fork.task.run.parent.round
    assert 0 < split < fork.task.run.num_rounds
    assert parted.rounds[0] == 0 and parted.rounds[-1] == whole.rounds[-1]
    before = parted.rounds < split
    assert (parted.accuracy[before] == whole.accuracy[whole.rounds < split]).all()


def test_a_run_that_another_process_trains_is_left_to_it(trained, tmp_path):
    _, (base, _) = trained
    (directory,) = directories_of("wima/table4", tmp_path, "fedavg")
    directory.path.mkdir(parents=True)
    said = []

    def released(line):
        said.append(line)
        if len(said) == 2:  # the other process has ended by now, with this run done
            shutil.copytree(base.path, directory.path, dirs_exist_ok=True)

    with locked(directory.path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "PATIENCE", 0.01)
        patch.setattr(plan, "_covers", lambda folder, task: True)
        outcome = work.work([directory], say=released)
    assert outcome.finished == [directory] and not outcome.trained and len(said) == 2


def test_stored_curves_give_the_same_numbers(trained, tmp_path):
    out_dir, found = trained
    stored = store.StoredResults("smoke", tmp_path)
    assert [directory.add_to(stored) for directory in found] == [True, True]
    assert [directory.add_to(stored) for directory in found] == [False, False]
    own = store.LocalResults(out_dir, "smoke")
    for cell in cells("ima/table1", "fedavg"):
        first, second = values.value(own, cell, "smoke"), values.value(stored, cell, "smoke")
        assert first.mean == pytest.approx(second.mean, abs=1e-3) and first.rounds == second.rounds
    for path in (tmp_path / "smoke").iterdir():
        header = store.load_record(path).header
        assert "command" not in header and header["strategy"] and header["fingerprint"] and header["versions"]["jax"]
        assert os.sep + "tmp" not in json.dumps(header)


def test_an_edited_run_is_not_reported(trained, tmp_path):
    _, (base, _) = trained
    copy = tmp_path / "copy"
    shutil.copytree(base.path, copy)
    lines = (copy / "metrics.jsonl").read_text()
    (copy / "metrics.jsonl").write_text(lines.replace('"accuracy": 0.', '"accuracy": 1.', 1))
    assert (copy / "metrics.jsonl").read_text() != lines
    with pytest.raises(UserError, match="altered"):
        store.read_directory(copy, base.task.run.key)


def test_stored_runs_are_not_trained_again_unless_a_fork_needs_them(trained, tmp_path):
    _, (base, fork) = trained
    tasks, stored = [base.task, fork.task], store.StoredResults("smoke", tmp_path)
    assert plan.without_stored(tasks, stored) == tasks
    base.add_to(stored)
    # The fork resumes a checkpoint, which is not stored.
    assert [t.run.key for t in plan.without_stored(tasks, store.StoredResults("smoke", tmp_path))] == [
        t.run.key for t in tasks
    ]
    fork.add_to(stored)
    stored = store.StoredResults("smoke", tmp_path)
    assert plan.without_stored(tasks, stored) == []
    assert [t.run.key for t in plan.without_stored(tasks, stored, analysed=[base.task.run.key])] == [base.task.run.key]
    more = dataclasses.replace(base.task, reads={*base.task.reads, "wima:window=3"})
    assert plan.without_stored([more], stored) == [more]


def test_a_run_with_more_read_outs_replaces_the_stored_one(tmp_path):
    stored = store.StoredResults("smoke", tmp_path)

    def added(*observe, eval_every=10):
        config = {"observe": list(observe), "eval_every": eval_every, "final_evals": 5}
        return stored.add(store.Record({"key": "k", "config": config}, [{"seed": 0, "round": 1}]))

    assert added("ema") and not added("ema") and not added("swa") and not added()
    assert added("ema", "swa") and not added("ema") and not added("ema", "swa", eval_every=20)
    assert added("ema", "swa", eval_every=5)
    (path,) = (tmp_path / "smoke").iterdir()
    assert store.load_record(path).header["config"] == {"observe": ["ema", "swa"], "eval_every": 5, "final_evals": 5}


def test_a_damaged_stored_file_is_one_line(trained, tmp_path):
    _, found = trained
    stored = store.StoredResults("smoke", tmp_path)
    found[0].add_to(stored)
    (path,) = (tmp_path / "smoke").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="damaged"):
        stored.records(found[0].task.run)


def test_the_table_is_written_next_to_the_printed_one(trained, tmp_path):
    out_dir, _ = trained
    own, one = store.LocalResults(out_dir, "smoke"), item("ima/table1")
    found = [values.value(own, cell, "smoke") for cell in cells("ima/table1", "fedavg")]
    write.write(one, "smoke", own, found, tmp_path)
    text = (tmp_path / "ima_table1.md").read_text()
    assert "Stand-in" in text and "81.17" not in text  # printed numbers are compared at paper scale alone
    write.write(one, "paper", own, [dataclasses.replace(value, scale="paper") for value in found], tmp_path)
    text = (tmp_path / "ima_table1.md").read_text()
    assert "81.17 / " in text and "84.68 / " in text
    rows = (tmp_path / "ima_table1.csv").read_text().splitlines()
    assert rows[0].startswith("row,column,variant") and len(rows) == 1 + len(found)
