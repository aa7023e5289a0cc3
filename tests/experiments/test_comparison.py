"""Files of a comparison: intervals, paired differences and reference methods."""

import dataclasses
import json

import pytest

from experiments.papers.remarks import lines_of
from experiments.tables import comparison
from fedwin.runs.config import Config
from fedwin.runs.journal import summarize
from tests.runs.test_journal import evaluations, journal

# Accuracies of three seeds, in percent.
ACCURACIES = {
    "fedavg": (50.0, 60.0, 70.0),
    "scaffold": (51.0, 62.0, 73.0),
    "bad": (55.0, None, 71.0),
    "iid": (90.0,) * 3,
}


def summary(values):
    """Returns the summary of a run whose seeds have these mean accuracies, in percent, and at last 20 points more."""
    lines = [line for seed in range(len(values)) for line in evaluations(range(11), seed)]
    for line in lines:
        accuracy = line["model"]["accuracy"] + (values[line["seed"]] or 0) / 100 - 0.8
        line["model"] = {"accuracy": accuracy, "loss": 0.5}
        line["wima5"] = {"accuracy": accuracy + 0.01, "loss": 0.25}
        line["simulated_seconds"] = 10.0 + line["seed"]
    ends = [0 if value is None else None for value in values]
    journals = {seed: journal(diverged_at=end, steady=(40, 10.0)) for seed, end in enumerate(ends)}
    return summarize(Config(num_rounds=10, final_evals=5), journals, lines, "abc", 1)


def written(folder, count):
    """Writes the comparison of runs of some seeds; returns its rows, the summaries, and the rows of comparison.csv."""
    configs, summaries = {}, {}
    for number, (method, values) in enumerate(ACCURACIES.items()):
        directory = folder / method
        directory.mkdir()
        sizes = {0: {"bytes_down": 0, "bytes_up": number * 1e6}, 10: {"bytes_down": 1e7, "bytes_up": number * 1e6}}
        ends = [seed for seed in range(count) if values[seed] is not None]  # the others diverged at once
        lines = [{"seed": s, "round": r} | sizes[r] for s in range(count) for r in ((0, 10) if s in ends else (0,))]
        (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        configs[method] = Config(out_dir=str(directory), seeds=list(range(count)), algorithm="fedavg")
        summaries[method] = summary(values[:count]) | {"fingerprint": method}
    configs["iid"] = dataclasses.replace(configs["iid"], partition="iid")
    rows = comparison.write(folder, summaries, configs)
    return (rows, summaries), lines_of(folder / "comparison.csv")


def test_differences_are_paired(tmp_path):
    """scaffold - fedavg = 1, 2, 3 points: 2 +- 4.302653 / sqrt(3)."""
    arguments, table = written(tmp_path, 3)
    by = {(row["method"], row["readout"]): row for row in table}
    found = by["scaffold", "model"]
    assert float(found["accuracy_percent"]) == pytest.approx(62) and found["seeds"] == found["of_seeds"] == "3"
    assert float(found["half_width_95"]) == pytest.approx(4.302653 * 11 / 3**0.5, rel=1e-6)
    assert float(found["difference_points"]) == pytest.approx(2)
    assert float(found["difference_low_95"]) == pytest.approx(-0.484138, rel=1e-5)
    assert float(found["difference_high_95"]) == pytest.approx(4.484138, rel=1e-5)
    assert float(by["fedavg", "wima5"]["difference_points"]) == pytest.approx(1)
    assert by["fedavg", "model"]["difference_points"] == "" and float(found["megabytes_sent"]) == 11
    assert float(found["simulated_seconds"]) == 11
    # A seed that diverged is left out of both, and counted.
    bad = by["bad", "model"]
    assert (bad["seeds"], bad["of_seeds"], bad["pairs"], bad["of_pairs"]) == ("2", "3", "2", "3")
    assert float(bad["megabytes_sent"]) == 12
    assert float(bad["difference_points"]) == pytest.approx(3)
    # Other data has another reference.
    assert by["iid", "model"]["compared_with"] == "" and by["iid", "wima5"]["compared_with"] == "iid"
    text = (tmp_path / "comparison.md").read_text()
    assert "| +2.00 | [-0.48, +4.48] | 3 of 3 | 11.0 | 0.5000 | 4.0 |" in text and found["command"] in text
    assert "2 of 3" in text and "Seeds that diverged" in text and "`iid`" in text
    shown = comparison.text(*arguments)
    assert "[-0.48, +4.48]" in shown and max(map(len, shown.splitlines())) <= 120
    for each in (shown, text):
        assert "mean over the last 5 of 10 rounds (5 evaluations)" in each and "half of the 95 %" in each
        assert "accuracy (%) +- 95 % CI" in each and "final (%)" in each and "80.00" in each
    assert (table[0]["last_rounds"], table[0]["of_rounds"], table[0]["evaluations"]) == ("5", "10", "5")
    assert float(table[0]["final_accuracy_percent"]) == pytest.approx(80)
    assert (tmp_path / "comparison.png").stat().st_size > 5000


def test_fewer_than_three_seeds_have_a_difference_and_no_interval(tmp_path, capsys):
    """Student's t for two seeds is 12.7 standard errors, too wide to be of use."""
    arguments, table = written(tmp_path, 2)
    found = next(row for row in table if (row["method"], row["readout"]) == ("scaffold", "model"))
    assert float(found["difference_points"]) == pytest.approx(1.5)
    assert found["half_width_95"] == found["difference_low_95"] == found["difference_high_95"] == ""
    shown = comparison.text(*arguments)
    assert "+-" not in shown and "56.50 (n = 2)" in shown
    assert comparison.FEW_SEEDS in (tmp_path / "comparison.md").read_text()
    assert (tmp_path / "comparison.png").stat().st_size > 5000 and not capsys.readouterr().err
    few = {"iid": arguments[1]["iid"], "bad": arguments[1]["bad"]}
    comparison.write(tmp_path, few, {row.method: row.config for row in arguments[0] if row.method in few})
    assert "comparison.csv had 2 other run(s); their own command writes it again" in capsys.readouterr().err


def test_only_methods_on_the_same_data_are_compared():
    configs = {
        "a": Config(),
        "b": Config(client_lr=1.0, algorithm="scaffold"),
        "c": Config(partition="iid"),
        "d": Config(partition="iid", loss="wsm"),
        "e": Config(num_clients=7),
    }
    assert comparison.references(configs) == {"a": "a", "b": "a", "c": "c", "d": "c", "e": "e"}
