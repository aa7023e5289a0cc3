"""Smoke runs from plan to picture: trained once, resumed after an interruption, stored and redrawn without training."""

import dataclasses
import json
import os
import shutil

import pytest
from matplotlib import image

from experiments import records
from experiments.papers.catalogue import catalogue, item
from experiments.papers.items import Analysis, Item, Sketch, file_stem
from experiments.reproduction import numbers, results, runs, work
from experiments.reproduction.request import Request
from experiments.reproduction.results import Results
from fedwin.files import locked

# FedAvg and its fork with IMA.
FIGURE = item("ima/figure5")


def directories(out_dir, one=FIGURE):
    return runs.run_directories(runs.plan([one], "smoke", (0,)), out_dir / "smoke", "smoke")


@pytest.fixture(scope="module")
def out_dir(tmp_path_factory):
    """One folder for all tests, so that they share runs as users do; FIGURE is trained in it, with an interruption."""
    out_dir = tmp_path_factory.mktemp("papers")
    found = directories(out_dir)
    with pytest.raises(work.BudgetSpent):
        work.work(found[:1], budget=0.0)
    assert not found[0].finished
    assert work.work(found) == {} and all(each.finished for each in found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "in_all_processes", None)  # nothing is trained twice
        assert work.work(directories(out_dir)) == {}
    return out_dir


@pytest.fixture
def trained(out_dir):
    return directories(out_dir)


def test_a_forks_curve_continues_that_of_its_parent(out_dir, trained):
    own = Results("smoke", out_dir / "smoke")
    whole, parted = (results.curves(own, directory.task.run)[0] for directory in trained)
    split = trained[1].task.run.parent.round
    assert 0 < split < trained[1].task.run.num_rounds
    assert parted.rounds.tolist() == whole.rounds.tolist()
    before = parted.rounds < split
    assert (parted.accuracy[before] == whole.accuracy[whole.rounds < split]).all()


def test_a_run_that_another_process_trains_is_left_to_it(trained, tmp_path, monkeypatch):
    (directory,) = directories(tmp_path, item("wima/table4"))
    directory.path.mkdir(parents=True)
    tried, train = [], work.in_all_processes

    def released(*given):
        tried.append(given)
        if len(tried) == 2:  # the other process has ended by now, with this run done
            shutil.copytree(trained[0].path, directory.path, dirs_exist_ok=True)
        return train(*given)

    monkeypatch.setattr(work, "PATIENCE", 0.01)
    monkeypatch.setattr(work, "in_all_processes", released)
    with locked(directory.path):
        assert work.work([directory]) == {}
    assert directory.finished and len(tried) == 2


def test_a_fork_of_a_run_that_ended_before_it_is_refused(trained, tmp_path):
    """Its parent diverged, or lost its checkpoints."""
    whole, fork = directories(tmp_path)
    shutil.copytree(trained[0].path, whole.path, ignore=shutil.ignore_patterns("checkpoints"))
    assert work.work([whole, fork]) == {fork.path: f"{whole.path} has ended without the checkpoint that it starts from"}


def test_stored_runs_give_the_same_numbers(out_dir, trained, tmp_path):
    for expected in (True, False):
        assert [results.keep(each.task.run, each.path, tmp_path) for each in trained] == [expected] * 2
    for cell in FIGURE.cells("smoke"):
        places = (out_dir / "smoke", tmp_path)
        first, second = (numbers.value(Results("smoke", place), cell) for place in places)
        assert first.mean == pytest.approx(second.mean, abs=1e-3) and first.rounds == second.rounds
    for path in tmp_path.iterdir():
        record = records.read(path)
        assert record.about["strategy"] and record.about["fingerprint"] and record.about["versions"]["jax"]
        assert os.sep + "tmp" not in json.dumps(record.about) and list(record.seconds) == record.seeds == [0]
        assert len(record.stored["data"]["checksum"]) == 32 and record.stored["machine"] == results.machine()


def test_stored_runs_are_not_trained_again_unless_a_fork_needs_them(trained, tmp_path):
    tasks, both = [each.task for each in trained], [each.task.run.key for each in trained]
    left = lambda planned, **more: [t.run.key for t in runs.without_stored(planned, Results("smoke", tmp_path), **more)]
    assert left(tasks) == both
    results.keep(tasks[0].run, trained[0].path, tmp_path)
    assert left(tasks) == both  # the fork resumes a checkpoint, which is not stored
    results.keep(tasks[1].run, trained[1].path, tmp_path)
    assert left(tasks) == [] and left(tasks, analyzed=both[:1]) == both[:1]
    assert left([dataclasses.replace(tasks[0], reads={"wima:window=3"})]) == both[:1]


# Requests


def covering(one, scale):
    """Returns cells of an item in which every row, column, variant and override comes at least once."""
    chosen, seen = [], set()
    for cell in one.cells(scale):
        entries = (cell.row, cell.column, cell.variant)
        met = {("override", override.variation.name) for override in one.overrides if override.applies_to(*entries)}
        shown = met | set(zip(("row", "column", "variant"), cell.position, strict=True))
        if not shown <= seen:
            chosen.append(cell)
            seen |= shown
    return chosen


def reproduced(out_dir, one, scale="smoke", **options):
    """Reproduces an item; returns the suffixes of the files that were written."""
    request = Request(scale=scale, out_dir=out_dir, **options)
    request.execute([one], {one.name: covering(one, scale)} if isinstance(one, Item) else {})
    written = sorted(request.tables.glob(f"{file_stem(one)}*"))
    for path in written:
        assert path.suffix != ".png" or image.imread(path).std() > 0.01  # something is drawn
    return {path.suffix for path in written}


@pytest.mark.parametrize(
    "name, scale, kinds",
    [
        ("ima/figure5", "smoke", {".csv", ".md", ".png"}),  # curves
        ("wsm/figure3_1", "smoke", {".json", ".png"}),  # needs no run
        ("ghb/figure5", "smoke", set()),  # a sketch is no error
        ("wima/figure3", "trend", {".csv", ".md", ".png"}),  # a sweep
        ("ima/figure5b", "trend", {".png"}),  # an analysis of trained models
    ],
)
def test_one_of_each_kind(out_dir, name, scale, kinds):
    assert reproduced(out_dir, item(name), scale, from_results=scale == "trend") == kinds


@pytest.mark.slow
@pytest.mark.parametrize("name", list(catalogue()))
def test_every_item(out_dir, name):
    one = item(name)
    nothing = isinstance(one, Sketch) or not (
        one.trajectories("smoke") if isinstance(one, Analysis) else one.cells("smoke")
    )
    assert bool(reproduced(out_dir, one)) != nothing
