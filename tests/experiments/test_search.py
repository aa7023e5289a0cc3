"""Search with Optuna: ranges and the values drawn from them, ranking, pruning, and a killed search that resumes."""

import importlib.util
import shlex
import shutil
import types

import pytest

from experiments.papers.remarks import lines_of
from experiments.tables import grid, search, sweep_picture
from fedwin.errors import UserError
from fedwin.files import is_locked
from fedwin.runs.config import Config
from tests.misuse import calls
from tests.refusals import refused

FLAGS = (
    "--dataset=digits --num_clients=20 --clients_per_round=2 --model=digits_mlp:hidden=8 --num_rounds=8 --eval_every=2 "
    "--final_evals=2 --checkpoint_every=4 --val_fraction=0.2 --seeds=0,1 --strategy=vmapped "
    "--grid=client_lr=log:0.001..10 --grid=batch_size=8..16 --search=optuna:trials=6,startup=2,seed=2"
)


class Drawn:
    """Draws a fixed fraction of every range, and records the ranges."""

    def __init__(self, fraction=0.5, choice=0):
        self.fraction, self.choice, self.asked = fraction, choice, {}

    def suggest_float(self, name, low, high, *, log=False):
        self.asked[name] = (low, high, log)
        return low * (high / low) ** self.fraction if log else low + self.fraction * (high - low)

    def suggest_int(self, name, low, high, *, log=False):
        return round(self.suggest_float(name, low, high))

    def suggest_categorical(self, name, choices):
        self.asked[name] = choices
        return choices[self.choice]


def test_values_are_drawn_from_ranges_and_lists():
    texts = ["client_lr=log:0.001..1", "batch_size=1..9", "weight_decay=0..0.3", "model=mlp,cnn", "shuffle=true"]
    suggest = Drawn()
    point = search.point_of(search.parse(texts), suggest)
    # sqrt(0.001) = 0.0316227766, to four digits.
    assert point == {"client_lr": 0.03162, "batch_size": 5, "weight_decay": 0.15, "model": "mlp", "shuffle": True}
    assert isinstance(point["batch_size"], int) and "shuffle" not in suggest.asked  # one value is no choice
    assert suggest.asked["client_lr"] == (0.001, 1.0, True) and suggest.asked["model"] == ["mlp", "cnn"]
    inside = search.parse(["client_lr=0.12341..0.9"])
    assert search.point_of(inside, Drawn(fraction=0.0)) == {"client_lr": 0.12341}  # rounding stays inside


def test_ranges_inside_of_values():
    space = search.parse(["algorithm=fedavg;fedprox:mu={log:0.01..1};ghb:tau={1..9}", "observe=wima:window={2..4}"])
    assert search.point_of(space, Drawn(choice=0)) == {"algorithm": "fedavg", "observe": ["wima:window=3"]}
    assert search.point_of(space, Drawn(choice=1))["algorithm"] == "fedprox:mu=0.1"
    suggest = Drawn(choice=2)
    assert search.point_of(space, suggest)["algorithm"] == "ghb:tau=5"
    assert list(map(sweep_picture._parameter, suggest.asked)) == ["algorithm", "tau of ghb", "window of wima"]


@pytest.mark.parametrize(
    "texts, message",
    [
        (["client_lr=1..0.1"], "the range '1..0.1' is empty"),
        (["client_lr=log:0..1"], "a logarithmic range starts above 0"),
        (["client_lr=lg:0.1..1"], "'lg:0.1..1' is not LOW..HIGH or log:LOW..HIGH"),
        (["algorithm=fedprox:mu={0.1-1}"], "'0.1-1' is not LOW..HIGH"),
        (["client_lr=0.1", "model=mlp"], "there is nothing to draw; give an axis a range"),
    ],
)
def test_an_invalid_axis_is_one_line(texts, message):
    refused(message, search.parse, texts)


def test_a_grid_has_no_ranges_and_a_search_needs_its_package(monkeypatch, tmp_path):
    refused("is a range; list the values of a grid, or draw from it with", grid.parse, ["client_lr=log:0.01..1"])
    assert search.SEARCHES.build("grid") is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refused("search=optuna: the package 'optuna' is not installed; pip install", search.SEARCHES.build, "optuna")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "installed")
    line = f"sweep --search=optuna --grid=client_lr=0.1..0.2 --algorithm=nosuch --out_dir={tmp_path / 'sweep'}"
    calls.refused(tmp_path, "unknown algorithm 'nosuch'", *line.split())


def test_the_first_seed_decides_for_all():
    steps = []
    report = lambda value, step: steps.append(step)
    trial = types.SimpleNamespace(user_attrs={}, report=report, should_prune=lambda: False)
    pruning = search.Pruning(trial, Config(num_rounds=8, seeds=[3, 5]), ("model", "loss"))
    assert not any(pruning(round, seed, {"model": {"loss": 1.0}}) for seed in (3, 5) for round in (0, 4, 8))
    assert steps == [4, 8]
    pruning.pruned_at = [0, 4]  # seeds that train at once stop in the same round, others in their first
    assert [pruning(round, seed, {}) for seed, round in ((3, 2), (3, 4), (5, 4))] == [False, True, True]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="pip install 'fedwin[optuna]'")
def test_a_killed_search_ends_as_an_uninterrupted_one(tmp_path, monkeypatch):
    """Killed in the second seed of one trial, between the decision to prune and the end of a run, and between draws."""

    class Killed(BaseException):
        pass

    def rows(folder):
        read = [{k: v.replace(str(folder), "") for k, v in row.items()} for row in lines_of(folder / "sweep.csv")]
        return [row | {"rounds_per_second": ""} for row in read]

    draw = search.Search._next  # one process at a time, lest two draw the same
    monkeypatch.setattr(search.Search, "_next", lambda self: {True: draw}[is_locked(self.base.out_dir)](self))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    flags = shlex.split(FLAGS)
    ended = calls.called("sweep", *flags, f"--out_dir={whole}")
    assert ended.status == 0 and "constrained_layout" not in str(ended.lines), ended.lines
    table = rows(whole)
    pruned = [row for row in table if row["pruned_in_round"]]
    assert len(table) == 6 and pruned and all(row["rank"] == "" for row in pruned)
    assert {int(row["batch_size"]) for row in table} <= set(range(8, 17))
    best = max((row for row in table if row["rank"]), key=lambda row: float(row["val_accuracy"]))
    assert best["winner"] == "1" and f"client_lr={best['client_lr']}" in ended.out
    text = (whole / "sweep.md").read_text()
    assert "- `client_lr`: `log:0.001..10`" in text
    assert "pruned runs, which are not ranked: means before that round, of seeds that train after" in text
    assert (whole / "sweep.png").stat().st_size > 5000
    launched = calls.called("sweep", *flags, f"--out_dir={tmp_path}/jobs", "--launcher=local:jobs=1")
    assert launched.status == 0 and rows(tmp_path / "jobs") == table, launched.lines  # one job: the same draws

    report, kills = search.Pruning.__call__, {"seed": 1, "pruned": 1, "refused": 1, "drawn": 1}
    trial = importlib.import_module("optuna").trial.Trial
    suggest = trial.suggest_int

    def killed_draw(self, *args, **options):
        if self.number and kills.pop("drawn", 0):
            raise Killed
        return suggest(self, *args, **options)

    def killed(self, round, seed, read_outs):
        stop = report(self, round, seed, read_outs)
        cause = "pruned" if stop else "seed" if (self.trial.number, seed, round) == (1, 1, 6) else None
        cause = "refused" if (self.trial.number, seed, round) == (0, 1, 4) else cause
        if kills.get(cause):
            kills[cause] -= 1
            raise UserError("no room") if cause == "refused" else Killed
        return stop

    with monkeypatch.context() as patched:
        patched.setattr(search.Pruning, "__call__", killed)
        patched.setattr(trial, "suggest_int", killed_draw)
        refused = calls.called("sweep", *flags, f"--out_dir={cut}")
        assert refused.status == 2 and "no room" in refused.lines[-1]
        for _ in range(3):
            with pytest.raises(Killed):
                calls.called("sweep", *flags, f"--out_dir={cut}")
    assert not any(kills.values()) and calls.called("sweep", *flags, f"--out_dir={cut}").status == 0
    assert rows(cut) == table

    with monkeypatch.context() as patched:
        calls.no_run_begins(patched)
        again = calls.called("sweep", *flags, f"--out_dir={whole}")
    assert again.status == 0 and again.out.splitlines()[-5:] == ended.out.splitlines()[-5:]
    for more, message in (
        ("--weight_decay=0.1", "holds a search with another flags; use the same flags to resume it"),
        ("--dry_run", "search=optuna draws its runs one by one"),
        ("--grid=algorithm=fedavg;krum", "algorithm 'krum' does not exist"),
    ):
        other = calls.called("sweep", *flags, f"--out_dir={whole}", more)
        assert other.status == 2 and message in other.lines[0]
    shutil.rmtree(next(path for path in whole.iterdir() if path.is_dir()))
    gone = calls.called("sweep", *flags, f"--out_dir={whole}")
    assert gone.status == 2 and "is gone; restore it" in gone.lines[0]
    (whole / search.STUDY).write_bytes((whole / search.STUDY).read_bytes()[:3000])
    damaged = calls.called("sweep", *flags, f"--out_dir={whole}")
    assert damaged.status == 2 and "study.db: not a readable study" in damaged.lines[0]
