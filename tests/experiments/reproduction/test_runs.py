"""Plans: runs are shared by tables and figures, forks come after their parents, directories are reused."""

import dataclasses
import json

import pytest

from experiments.papers.catalogue import catalogue, item
from experiments.papers.scales import SCALES
from experiments.reproduction import results, runs


def one_task(*seeds):
    table = item("wima/table4")
    cells = [cell for cell in table.cells("smoke") if cell.column == table.columns[0]]
    (task,) = runs.plan([table], "smoke", seeds, {table.name: cells})
    return task


def test_a_table_alone_plans_the_runs_of_all_tables():
    alone = runs.plan([item("wima/table4")], "paper")
    together = {task.run.key: task.readout_hash for task in runs.plan(catalogue().values(), "paper")}
    assert all(together[task.run.key] == task.readout_hash for task in alone)
    assert any({"wima:window=5", "wima:window=100", "wima:window=200"} <= task.reads for task in alone)


def test_a_run_is_evaluated_whenever_one_of_its_tables_or_figures_needs_it():
    tasks, needed = runs.all_tasks("paper"), {}
    for one in catalogue().values():
        for run, *_ in runs.required_runs(one, "paper"):
            needed.setdefault(run.key, set()).add(run.config().eval_every)
    assert any(len(each) > 1 for each in needed.values())
    assert all(every % tasks[key].eval_every == 0 for key, each in needed.items() for every in each)


def test_read_outs_of_a_setting_are_observed_besides_those_of_cells():
    tasks = [task for task in runs.plan([item("ghb/table4")], "paper") if task.run.config().observe]
    assert tasks and all(set(task.run.config().observe) <= task.reads for task in tasks)


def test_a_searched_grid_plans_its_search_runs_besides_the_best_point(monkeypatch):
    monkeypatch.setattr(runs, "best_point", lambda results, cell: 1)
    cell = next(cell for cell in item("ghb/table4").cells("paper") if cell.row.name == "fedavgm")
    tasks = runs.plan([item("ghb/table4")], "paper", (0, 1), {"ghb/table4": [cell]}, results.stored("paper"))
    searched = [(runs.search_run(run), {0}) for run in cell.runs]
    assert [(task.run, task.seeds) for task in tasks] == [*searched, (cell.runs[1], {0, 1})]


@pytest.mark.parametrize("scale", SCALES)
def test_a_fork_comes_after_its_parent_and_shares_it_with_the_table(scale):
    seen = {}
    for task in runs.plan([item("ima/table1")], scale):
        checkpoint = task.run.parent
        if checkpoint is not None:
            parent = seen[checkpoint.run.key]
            assert "wrap" not in parent.run.fields and task.run.fields["wrap"]
            assert checkpoint.round in parent.keep_rounds
        seen[task.run.key] = task
    assert any(task.run.parent for task in seen.values())


def test_a_directory_with_more_evaluations_than_required_is_reused(tmp_path):
    task = one_task(0, 1)
    (new,) = runs.run_directories([task], tmp_path, "smoke")
    early = tmp_path / task.run.key / "early-seed0-1"
    early.mkdir(parents=True)
    config = {"observe": [*task.reads, "ema"], "eval_every": 1, "final_evals": 50, "fork_from": ""}
    (early / "config.json").write_text(json.dumps({"config": config}))
    (found,) = runs.run_directories([task], tmp_path, "smoke")
    assert new.path != early and found.path == early and not found.finished
    # Seeds requested later get a directory of their own.
    more = runs.run_directories([one_task(0, 1, 2)], tmp_path, "smoke")
    assert [each.seeds for each in more] == [(0, 1), (2,)] and more[0].path == early
    (early / "config.json").write_text(json.dumps({"config": config | {"observe": []}}))
    assert runs.run_directories([task], tmp_path, "smoke")[0].path == new.path


def test_seeds_of_a_directory_train_at_once_and_at_paper_scale_apart(tmp_path):
    task = dataclasses.replace(next(iter(runs.all_tasks("smoke").values())), seeds={0, 1, 2})
    (together,) = runs.run_directories([task], tmp_path, "smoke", seeds_at_once=2)
    config = together.config()
    assert (config.seeds_at_once, config.strategy, config.seeds) == (2, "vmapped", [0, 1, 2])
    apart = runs.run_directories([task], tmp_path, "paper", seeds_at_once=2)
    assert {each.seeds for each in apart} == {(0,), (1,), (2,)}
    assert {each.config().seeds_at_once for each in apart} == {1}
    # A directory in use resumes as it was started.
    together.path.mkdir(parents=True)
    (together.path / "config.json").write_text(json.dumps({"config": dataclasses.asdict(config)}))
    (again,) = runs.run_directories([task], tmp_path, "smoke")
    assert again.path == together.path and again.config() == config


def test_rounds_left_of_a_run_and_its_fork(tmp_path):
    tasks = {bool(task.run.parent): task for task in runs.plan([item("ima/figure5")], "smoke", (0, 1))}
    found = {bool(each.task.run.parent): each for each in runs.run_directories([*tasks.values()], tmp_path, "smoke")}
    base, fork = found[False], found[True]
    assert base.completed() == [0, 0] and fork.completed() == [fork.task.run.first_round] * 2 != [0, 0]
    assert base.ready and not fork.ready
    base.path.mkdir(parents=True)
    lines = [{"seed": 0, "round": 6}, {"seed": 1, "round": 4}]  # the first seed diverged
    (base.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert base.completed() == [8, 4] and base.rounds_left() == 4


@pytest.mark.parametrize("scale", ["trend", "paper"])
def test_every_stored_curve_belongs_to_a_table_or_figure(scale):
    packed = results.stored(scale).packed
    assert packed and packed.keys() <= runs.all_tasks(scale).keys()
