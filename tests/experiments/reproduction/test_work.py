"""A smoke run of tables: trained once, gone on with after an interruption, kept and redrawn without training."""

import dataclasses
import json
import os
import shutil

import pytest

from experiments.papers.catalogue import item
from experiments.reproduction import keeping, places, plan, shelf, values, work, written
from fedwin.errors import UserError
from fedwin.files import locked


def cells(name, *rows):
    one = item(name)
    return [cell for cell in one.cells("smoke") if cell.row.name in rows and cell.column.name == one.columns[0].name]


def units_of(name, out_dir, *rows):
    one = item(name)
    return places.units(plan.plan([one], "smoke", (0,), {name: cells(name, *rows)}), out_dir, "smoke")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """IMA's FedAvg with its fork, both trained."""
    out_dir = tmp_path_factory.mktemp("papers")
    found = units_of("ima/table1", out_dir, "fedavg")
    outcome = work.work(found, say=lambda line: None)
    assert len(outcome.trained) == len(found) == 2 and not outcome.refused
    return out_dir, found


def test_nothing_is_trained_twice(trained):
    out_dir, _ = trained
    outcome = work.work(units_of("ima/table1", out_dir, "fedavg"), say=lambda line: None)
    assert not outcome.trained and len(outcome.found) == 2


def test_a_forks_curve_goes_on_from_the_run_it_parts_from(trained):
    out_dir, (base, fork) = trained
    where = shelf.Directories(out_dir, "smoke")
    whole, parted = (shelf.curves(where, unit.task.run)[0] for unit in (base, fork))
    split = fork.task.run.parent.round
    assert 0 < split < fork.task.run.num_rounds
    assert parted.rounds[0] == 0 and parted.rounds[-1] == whole.rounds[-1]
    before = parted.rounds < split
    assert (parted.accuracy[before] == whole.accuracy[whole.rounds < split]).all()


def test_a_run_that_another_process_holds_is_left_to_it(trained, tmp_path):
    _, (base, _) = trained
    (unit,) = units_of("wima/table4", tmp_path, "fedavg")
    unit.directory.mkdir(parents=True)
    said = []

    def released(line):
        said.append(line)
        if len(said) == 2:  # the other process has ended by now, with this run done
            shutil.copytree(base.directory, unit.directory, dirs_exist_ok=True)

    with locked(unit.directory), pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "PATIENCE", 0.01)
        patch.setattr(places, "_covers", lambda folder, task: True)
        outcome = work.work([unit], say=released)
    assert outcome.found == [unit] and not outcome.trained and len(said) == 2


def test_a_budget_stops_with_everything_saved_and_the_same_order_goes_on(tmp_path):
    unit, _ = units_of("ima/table1", tmp_path, "fedavg")
    with pytest.raises(work.BudgetSpent):
        work.work([unit], budget=0.0, say=lambda line: None)
    assert not unit.finished
    assert work.work([unit], say=lambda line: None).trained == [unit]


def test_kept_curves_give_the_same_numbers(trained, tmp_path):
    out_dir, found = trained
    kept = shelf.Kept("smoke", tmp_path)
    assert [keeping.keep(unit, kept) for unit in found] == [True, True]
    assert [keeping.keep(unit, kept) for unit in found] == [False, False]
    own = shelf.Directories(out_dir, "smoke")
    for cell in cells("ima/table1", "fedavg"):
        first, second = values.value(own, cell, "smoke"), values.value(kept, cell, "smoke")
        assert first.mean == pytest.approx(second.mean, abs=1e-3) and first.rounds == second.rounds
    for path in (tmp_path / "smoke").iterdir():
        header = shelf.read_kept(path).header
        assert header["command"].startswith("fedwin train") and header["fingerprint"] and header["versions"]["jax"]
        assert os.sep + "tmp" not in json.dumps(header)


def test_what_is_kept_is_not_trained_again_unless_a_fork_needs_it(trained, tmp_path):
    _, (base, fork) = trained
    tasks, kept = [base.task, fork.task], shelf.Kept("smoke", tmp_path)
    assert plan.without_kept(tasks, kept) == tasks
    keeping.keep(base, kept)
    # The fork goes on from a checkpoint, which is not kept.
    assert [t.run.key for t in plan.without_kept(tasks, shelf.Kept("smoke", tmp_path))] == [t.run.key for t in tasks]
    keeping.keep(fork, kept)
    kept = shelf.Kept("smoke", tmp_path)
    assert plan.without_kept(tasks, kept) == []
    assert [t.run.key for t in plan.without_kept(tasks, kept, looked_into=[base.task.run.key])] == [base.task.run.key]
    more = dataclasses.replace(base.task, reads={*base.task.reads, "wima:window=3"})
    assert plan.without_kept([more], kept) == [more]


def test_a_damaged_kept_file_is_one_line(trained, tmp_path):
    _, found = trained
    kept = shelf.Kept("smoke", tmp_path)
    keeping.keep(found[0], kept)
    (path,) = (tmp_path / "smoke").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="damaged"):
        kept.records(found[0].task.run)


def test_the_table_stands_beside_the_printed_one(trained, tmp_path):
    out_dir, _ = trained
    own, one = shelf.Directories(out_dir, "smoke"), item("ima/table1")
    found = [values.value(own, cell, "smoke") for cell in cells("ima/table1", "fedavg")]
    written.write(one, "smoke", own, found, tmp_path)
    text = (tmp_path / "ima_table1.md").read_text()
    assert "Stand-in" in text and "81.17" not in text  # what is printed compares at the paper's own scale alone
    written.write(one, "paper", own, [dataclasses.replace(value, scale="paper") for value in found], tmp_path)
    text = (tmp_path / "ima_table1.md").read_text()
    assert "81.17 / " in text and "84.68 / " in text
    rows = (tmp_path / "ima_table1.csv").read_text().splitlines()
    assert rows[0].startswith("row,column,variant") and len(rows) == 1 + len(found)
