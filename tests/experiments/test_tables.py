"""Tables and pictures of runs."""

import json

from experiments import runs as runs_command
from fedwin.callbacks import scores
from fedwin.runs.config import Config
from fedwin.runs.journal import summarize
from tests.runs.test_journal import evaluations, journal


def summary(seeds=(0,), diverged=()):
    """Returns the summary of ten rounds, whose last five have a mean of 80 % for seed 0, 79 for seed 1 ..."""
    lines = [line for seed in seeds for line in evaluations(range(11), seed)]
    for line in lines:
        line["model"]["accuracy"] -= line["seed"] / 100
    journals = {seed: journal(diverged_at=3 if seed in diverged else None) for seed in seeds}
    return summarize(Config(num_rounds=10, final_evals=5), journals, lines, "f", 1)


def test_one_seed_needs_no_column_of_seeds():
    shown = scores.summary_table({"fedavg": summary()})
    assert "each seed" not in shown and "80.00" in shown and "+-" not in shown
    assert "mean over the last 5 of 10 rounds (5 evaluations); seed 0; final: the last evaluation" in shown
    assert "std" not in shown and "final (%)" in shown and "100.00" in shown
    several = scores.summary_table({"fedavg": summary((0, 1))})
    assert "each seed" in several and "79.50 +- 0.71" in several and "seeds 0, 1" in several
    assert "accuracy (%) +- std" in several and "+- is the standard deviation over seeds" in several


def test_accuracies_over_clients_are_in_a_table_of_their_own():
    given = summary()
    counts = {"std": None, "seeds": 1, "of_seeds": 1}
    for kind, mean in {"client": 0.5, "finetune": 0.75, "unseen": 0.25}.items():
        for place, figure in enumerate(("mean", "worst10", "std", "p5")):
            given["over_seeds"]["model"][f"{kind}_accuracy_{figure}"] = {"mean": mean / 2**place, **counts}
    given["seeds"][0]["client_evaluations"] = 1
    *_, first, second, third, note = scores.summary_table({"qffl": given}).splitlines()
    rows = [line.split("  ") for line in (first, second, third)]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["qffl", "model", "as it is", "50.00", "25.00", "12.50"],
        ["qffl", "model", "after finetune", "75.00", "37.50", "18.75"],
        ["qffl", "model", "as it is, new clients", "25.00", "12.50", "6.25"],
    ]
    assert note.startswith("on clients' own examples, in 1 of these evaluations (--eval_clients_every); worst 10 %")
    assert scores.is_lower("client_accuracy_std") and not scores.is_lower("client_accuracy_worst10")
    shown = scores.RunSummary(summary() | {"algorithm": "<b>"})
    assert json.loads(json.dumps(shown))["algorithm"] == "<b>" and repr(shown).splitlines()[2].startswith("<b> ")
    assert shown._repr_html_().startswith("<pre>run") and "&lt;b&gt;" in shown._repr_html_()


def test_diverged_seeds_are_named():
    shown = scores.summary_table({"a": summary((0, 1), diverged=(1,)), "b": summary((0,), diverged=(0,))})
    assert "a seed 1 diverged in round 3 and counts in no mean" in shown and "80.00 -" in shown
    assert "80.00 (1 of 2 seeds)" in shown
    assert shown.splitlines()[3].split() == ["b", "model", "diverged", "-", "diverged", "-", "-"]


def test_runs_below_a_folder(tmp_path):
    for name, done in (("a", True), ("a/below/b", False)):
        place = tmp_path / name
        (place / "checkpoints" / "config.json").mkdir(parents=True)
        config = {"algorithm": "fedavg", "dataset": "digits", "num_rounds": 8, "seeds": ["0", 1]}
        (place / "config.json").write_text(json.dumps({"config": config}))
        lines = [{"seed": seed, "round": r, "model": {}} for seed in (0, 1) for r in range(4 + 4 * done + seed * done)]
        (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if done:
            ended = {"0": {"diverged_at": 8}, "1": {"diverged_at": None}}
            (place / "summary.json").write_text(json.dumps({"seeds": ended}))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("[]")
    shown = runs_command.table(str(tmp_path))
    assert "finished, 1 diverged\n" in shown and "unfinished" in shown and "3 of 8" in shown and "0,1" in shown
    assert "other" not in shown and len(shown.splitlines()) == 4
    assert runs_command.table(str(tmp_path / "other")).startswith("no runs in")
