"""Sweeps: work shared by processes, no repeated training, ranking and files."""

import contextlib
import dataclasses
import json
import pathlib
import shlex
import shutil

import pytest

from experiments import launching
from experiments.figures import style
from experiments.papers.remarks import lines_of
from experiments.tables import grid, sweep_picture, sweeps
from experiments.viewer import runs
from fedwin.analysis import Interval
from fedwin.files import locked, write_json
from fedwin.runs.config import Config
from fedwin.runs.directory import finished_summary
from fedwin.runs.journal import summarize
from fedwin.runs.seeds import SeedRunner
from tests.misuse import calls
from tests.refusals import refused
from tests.runs.test_journal import journal
from tests.small_runs import lines

FLAGS = f"{calls.SMALL} --num_rounds=3 --eval_every=2"


def summary(*accuracies, metric="accuracy", readout="model"):
    """Returns the summary of a run with a number per seed, None for one that diverged."""
    values = [(seed, round, {metric: value or 0.0}) for seed, value in enumerate(accuracies) for round in range(3)]
    lines = [{"seed": seed, "round": round, readout: metrics} for seed, round, metrics in values]
    journals = {seed: journal(diverged_at=1 if value is None else None) for seed, value in enumerate(accuracies)}
    return summarize(Config(num_rounds=2), journals, lines, "f", 1)


def ranks(found, select="accuracy", readout="model"):
    return sweeps.Sweep({}, {}, {}, found, select, readout).ranked


def test_the_winner_is_the_best_mean():
    found = {"a": summary(0.1, 0.3), "b": summary(0.4, 0.2), "c": summary(0.2, 0.2)}
    assert list(ranks(found)) == ["b", "a", "c"]
    losses = {"a": summary(2.0, metric="val_loss"), "b": summary(1.0, metric="val_loss")}
    assert list(ranks(losses, "val_loss")) == ["b", "a"]
    wima = {"a": summary(0.5, readout="wima5"), "b": summary(0.4, readout="wima5")}
    assert list(ranks(wima, readout="wima5")) == ["a", "b"]
    refused("no model accuracy; available: wima5 accuracy", ranks, wima)


def test_a_run_that_lost_a_seed_does_not_win():
    found = {"a": summary(0.9, None), "b": summary(0.4, 0.2), "c": summary(None, None)}
    assert list(ranks(found)) == ["b", "a"] and ranks({"c": found["c"]}) == {}


def test_what_another_process_is_at_is_left_to_it_and_taken_over(tmp_path, monkeypatch, capsys):
    """The first run is another's, which trains the last meanwhile and dies; then it is this one's."""
    configs = grid.configs(Config(out_dir=str(tmp_path)), {"client_lr": [0.1, 0.2, 0.3]})
    first, _, last = places = [pathlib.Path(config.out_dir) for config in configs.values()]
    for place in places:
        place.mkdir()
    trained, held = [], contextlib.ExitStack()
    held.enter_context(locked(first))
    write_json(last / "summary.json", summary(0.3))

    def train(config):
        with locked(config.out_dir):
            trained.append(config.client_lr)
        return summary(config.client_lr)

    def known(config):
        path = pathlib.Path(config.out_dir, "summary.json")
        return json.loads(path.read_text()) if path.exists() else None

    monkeypatch.setattr(sweeps.fedwin, "run", train)
    monkeypatch.setattr(sweeps, "finished_summary", known)
    monkeypatch.setattr(sweeps.time, "sleep", lambda seconds: seconds == sweeps.PAUSE and held.close())
    assert list(sweeps.run_all(configs)) == list(configs) and trained == [0.2, 0.1]
    said = ["[2/3] client_lr=0.2", "other processes compute 1 of 3 runs: client_lr=0.1", "[1/3] client_lr=0.1"]
    assert capsys.readouterr().out.splitlines() == said


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """(folder, arguments, how it ended) of a small sweep over two axes."""
    folder = tmp_path_factory.mktemp("sweep")
    arguments = [*shlex.split(FLAGS), "--grid=partition_seed=3,4", "--grid=algorithm=fedavg"]
    arguments += ["--val_fraction=0.2", "--seeds=0,1", f"--out_dir={folder}"]
    return folder, arguments, calls.called("sweep", *arguments)


def test_the_files_hold_grid_and_winner(swept):
    folder, arguments, ended = swept
    assert ended.status == 0, ended.lines
    rows = lines_of(folder / "sweep.csv")
    assert [(r["partition_seed"], r["algorithm"]) for r in rows] == [("3", "fedavg"), ("4", "fedavg")]
    best, other = sorted(rows, key=lambda r: int(r["rank"]))
    assert (best["winner"], other["winner"]) == ("1", "0")
    assert float(best["val_accuracy"]) > float(other["val_accuracy"])
    evaluated = lines(folder / "partition_seed_3_algorithm_fedavg")
    last = [line["model"]["val_accuracy"] for line in evaluated if line["round"] > 1]
    assert len(last) == 4 and float(rows[0]["val_accuracy"]) == pytest.approx(sum(last) / 4)
    # 4 bytes for each of (64 + 1) 8 + (8 + 1) 10 parameters, down and up, 2 clients, 3 rounds.
    assert float(rows[0]["megabytes_sent"]) == pytest.approx(4 * 610 * 2 * 2 * 3 / 1e6)
    text = (folder / "sweep.md").read_text()
    assert best["command"] in text and best["command"] in ended.out and "--eval_val" in best["command"]
    assert "- `partition_seed`: `3`, `4`" in text and best["fingerprint"] in text
    assert (folder / "sweep.png").stat().st_size > 5000
    assert runs.read(folder / "partition_seed_3_algorithm_fedavg", "a").grid == ["partition_seed", "algorithm"]
    # Averages in the table and in both files; two seeds have no interval.
    averaged = "model: mean over the last 2 of 3 rounds (2 evaluations) and 2 seeds; final: the last evaluation"
    assert averaged in text and averaged in ended.out and "(n = 2)" in text and "+-" not in text + ended.out
    assert {(r["last_rounds"], r["of_rounds"], r["evaluations"]) for r in rows} == {("2", "3", "2")}
    ends = [line["model"]["val_accuracy"] for line in evaluated if line["round"] == 3]
    assert float(rows[0]["val_accuracy_final"]) == pytest.approx(sum(ends) / 2)
    assert best["val_accuracy_half_width_95"] == ""


def test_a_finished_sweep_trains_nothing_and_a_killed_one_only_the_rest(swept, monkeypatch):
    folder, arguments, ended = swept
    directory = folder / "partition_seed_3_algorithm_fedavg"
    before = (folder / "sweep.csv").read_bytes()
    with monkeypatch.context() as patched:
        calls.no_run_begins(patched)
        again = calls.called("sweep", *arguments)
        patched.setattr("fedwin.runs.directory.data_hashes", lambda federations: {"0": "of other files"})
        of_run = "run 'partition_seed=3 algorithm=fedavg': "
        calls.refused(folder, f"{of_run} | was run on other data", "sweep", *arguments)
    assert again.status == 0 and again.out.splitlines()[-7:] == ended.out.splitlines()[-7:]
    assert (folder / "sweep.csv").read_bytes() == before
    # Killed after the second round of the second seed.
    (directory / "summary.json").unlink()
    whole = lines(directory)
    shutil.rmtree(directory / "checkpoints" / "seed_1" / "3")
    begun, train = [], SeedRunner.train
    monkeypatch.setattr(SeedRunner, "train", lambda self: begun.append(self.program) or train(self))
    resumed = calls.called("sweep", *arguments)
    assert resumed.status == 0 and len({id(program) for program in begun}) == 1
    assert lines(directory) == whole


def test_a_finished_run_is_known_by_its_flags(swept, monkeypatch, capsys):
    directory = swept[0] / "partition_seed_3_algorithm_fedavg"
    flags = json.loads((directory / "config.json").read_text())["config"]
    config = Config(**flags)
    refused("not 9; for more rounds use .* --fork_from=.*@3", finished_summary, Config(**flags | {"num_rounds": 9}))
    monkeypatch.setattr(launching, "finished_summary", lambda config: None)  # as if the code of its imports had changed
    assert list(launching.summary_of("one", config)["seeds"]) == [0, 1]
    assert "note: 'one' was trained with other code of --import; use another" in capsys.readouterr().err


def test_a_dry_run_beside_another_process_counts_what_is_left_to_this_one(swept, tmp_path):
    (tmp_path / "partition_seed_3_algorithm_fedavg").mkdir()
    with locked(tmp_path / "partition_seed_3_algorithm_fedavg"):
        begun = calls.called("sweep", *swept[1], f"--out_dir={tmp_path}", "--dry_run")
    assert begun.status == 0 and "is in use by" in begun.out, begun.lines


@pytest.mark.parametrize(
    "axes, seeds",
    [
        ({"client_lr": [0.3, 0.01, 0.1]}, 3),
        ({"client_lr": [1.0, 2.0], "num_rounds": [1, 2], "model": ["m", "n"], "batch_size": [1]}, 1),
    ],
    ids=("one", "three"),
)
def test_pictures_of_one_and_more_axes(axes, seeds, tmp_path, monkeypatch):
    monkeypatch.setattr(style, "DEFAULT_DPI", 60)
    labels = [grid.label(point) for point in grid.points(axes)]
    found = {label: Interval(0.1 * n, 0.3 if seeds > 1 else None, seeds, seeds) for n, label in enumerate(labels)}
    found[labels[0]] = Interval(None, None, 0, seeds)
    scale = sweep_picture.Scale("test accuracy (%)", 100, 2, False)
    for ranked in (labels[:0:-1], []):
        kept = found if ranked else dict.fromkeys(labels, found[labels[0]])
        sweep_picture.draw(axes, kept, ranked, scale, tmp_path / "p.png")
        assert (tmp_path / "p.png").stat().st_size > 5000


def test_ties_share_a_rank_and_are_named():
    found = {"a": summary(0.2), "b": summary(0.4), "c": summary(None), "d": summary(0.4)}
    points = {label: {"model": label} for label in found}
    sweep = sweeps.Sweep({"model": list(found)}, points, dict.fromkeys(found, Config()), found, "accuracy")
    assert sweep.ranked == {"b": 1, "d": 1, "a": 3}
    assert sweeps.best_lines(sweep)[0].endswith(": b: 40.00, as d: a tie, of which the first is named")
    lost = dataclasses.replace(sweep, summaries={"a": summary(0.4, None)})
    assert sweeps.best_lines(lost)[0].endswith(": a: 40.00; 1 of its 2 seeds diverged")


@pytest.mark.parametrize(
    "accuracies, said",
    [((0.4, 0.3, 0.2), "0.1 is the lowest of its values; a lower"), ((0.2, 0.3, 0.2), ""), ((0.2, 0.4), "")]
    + [((0.2, None, 0.4), "0.3 is the highest of its values; a higher")],
)
def test_a_best_run_at_the_end_of_an_axis_is_noted(accuracies, said):
    points = {str(n): {"client_lr": n / 10, "model": "mlp", "dropout": 0.0} for n, _ in enumerate(accuracies, 1)}
    axes = {"client_lr": [n["client_lr"] for n in points.values()], "model": ["mlp"], "dropout": [0.0, 0.1, 0.2]}
    found = dict(zip(points, map(summary, accuracies), strict=True))
    sweep = sweeps.Sweep(axes, points, dict.fromkeys(points, Config()), found, "accuracy")
    notes = [f"note: client_lr={said} one may be better"] if said else []
    assert sweeps.end_notes(sweep) == notes
    assert sweeps.end_notes(dataclasses.replace(sweep, trials=points)) == []


def test_every_run_diverged():
    sweep = sweeps.Sweep({"client_lr": [1]}, {"a": {"client_lr": 1}}, {"a": Config()}, {"a": summary(None)}, "accuracy")
    assert sweeps.best_lines(sweep) == ["Every run diverged: there is no best run."] and sweeps.end_notes(sweep) == []
    assert "diverged" in sweeps.text(sweep)
