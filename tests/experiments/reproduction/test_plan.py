"""Runs are shared by tables and figures, forks come after what they go on from, directories are found again."""

import json

import pytest

from experiments.papers.catalogue import catalogue, item
from experiments.papers.scales import SCALES
from experiments.reproduction import dry_run, places, plan, shelf
from fedwin.runs.dry_run import Pace


def keys(name, scale="paper"):
    return {run.key for run, _, _ in plan.needs(item(name), scale)}


def one_task(*seeds):
    one = item("wima/table4")
    cells = [cell for cell in one.cells("smoke") if cell.column == one.columns[0]]
    (task,) = plan.plan([one], "smoke", seeds, {one.name: cells})
    return task


def test_tables_share_runs():
    assert keys("wima/table4") <= keys("wima/table2")
    assert keys("wima/figure1") <= keys("wima/table2")
    (run,) = (task for task in plan.plan([item("wima/table4")], "paper") if "cifar100" in task.run.config().dataset)
    assert {"wima:window=5", "wima:window=100", "wima:window=200"} <= run.reads


def test_a_table_alone_and_all_tables_plan_the_same_run():
    alone = {task.run.key: task.reading for task in plan.plan([item("wima/figure1")], "paper")}
    whole = {task.run.key: task.reading for task in plan.plan(catalogue().values(), "paper")}
    assert all(whole[key] == reading for key, reading in alone.items())


@pytest.mark.parametrize("scale", SCALES)
def test_a_fork_comes_after_the_run_it_goes_on_from_and_shares_it_with_the_table(scale):
    tasks = plan.plan([item("ima/table1")], scale)
    seen = {}
    for task in tasks:
        source = task.run.parent
        if source is not None:
            parent = seen[source.run.key]
            assert "wrap" not in parent.run.fields and task.run.fields["wrap"]
            assert source.round in parent.stays
        seen[task.run.key] = task
    assert any(task.run.parent for task in tasks)


def test_a_run_that_shows_more_than_is_asked_for_serves(tmp_path):
    task = one_task(0)
    (new,) = places.units([task], tmp_path, "smoke")
    early = tmp_path / "smoke" / task.run.key / "early-seed0"
    early.mkdir(parents=True)
    config = {"observe": [*task.reads, "ema"], "eval_every": 1, "final_evals": 50, "fork_from": ""}
    (early / "config.json").write_text(json.dumps({"config": config}))
    (found,) = places.units([task], tmp_path, "smoke")
    assert new.directory != early and found.directory == early and not found.finished
    (early / "config.json").write_text(json.dumps({"config": config | {"observe": []}}))
    assert places.units([task], tmp_path, "smoke")[0].directory == new.directory


def test_seeds_that_are_asked_for_later_get_a_directory_of_their_own(tmp_path):
    task = one_task(0, 1)
    (unit,) = places.units([task], tmp_path, "smoke")
    unit.directory.mkdir(parents=True)
    (unit.directory / "config.json").write_text(json.dumps({"config": task.fields()}))
    task = one_task(0, 1, 2)
    assert [found.seeds for found in places.units([task], tmp_path, "smoke")] == [(0, 1), (2,)]


def test_at_paper_scale_every_seed_can_be_taken_by_another_process(tmp_path):
    tasks = plan.plan([item("wima/table4")], "paper")
    assert {unit.seeds for unit in places.units(tasks, tmp_path, "paper")} == {(0,), (1,), (2,)}


def test_what_is_left_counts_the_last_rounds_of_every_seed_and_a_fork_from_where_it_begins(tmp_path):
    tasks = {bool(task.run.parent): task for task in plan.plan([item("ima/figure5")], "smoke", (0, 1))}
    whole, fork = (
        next(u for u in places.units(list(tasks.values()), tmp_path, "smoke") if u.task is tasks[forked])
        for forked in (False, True)
    )
    assert whole.completed() == [0, 0] and fork.completed() == [fork.begins_at] * 2
    config, pace = whole.config(), Pace(1.0, 10.0, 0.5)
    assert (config.num_rounds, config.eval_every, config.final_evals) == (8, 2, 2)
    once = (2, 4, 6, 7, 8)
    assert dry_run.seconds(config, pace, whole.completed()) == 10 + 2 * (8 * 1.0 + len(once) * 0.5)
    whole.directory.mkdir(parents=True)
    lines = [{"seed": 0, "round": 8}, {"seed": 1, "round": 4}]
    (whole.directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert whole.completed() == [8, 4] and whole.rounds_left() == 4
    assert dry_run.seconds(config, pace, whole.completed()) == 10 + 4 * 1.0 + 3 * 0.5


@pytest.mark.parametrize("scale", ["trend", "paper"])
def test_every_kept_curve_belongs_to_a_table_or_figure(scale):
    kept = {path.name.partition("-seed")[0] for path in (shelf.KEPT / scale).glob("*.jsonl.gz")}
    assert kept and kept <= plan.everything(scale).keys()
