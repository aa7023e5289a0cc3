"""Figures of evaluations: sweeps, smoothness, targets, labels, clients and staleness."""

import numpy as np
import pytest

from experiments.figures import clients, curves, labels, smoothness, sources, staleness, sweeps, targets
from experiments.figures.sources import Series
from fedwin import data, sampling
from tests.experiments.figures.common import drawn, line
from tests.refusals import refused


def test_sweeps_are_means_over_seeds(tmp_path):
    found = sweeps.compute({"FedAvg": {1: [0.4, 0.6], 0: [0.1], 100: [0.7, 0.7]}, "WSM": {0: [0.2], 1: [0.5]}}, "alpha")
    one = found["methods"][0]
    assert one["x"] == [0, 1, 100] and one["mean"] == pytest.approx([0.1, 0.5, 0.7]) and found["log"]
    assert one["std"][0] is None and one["std"][1] == pytest.approx(np.std([0.4, 0.6], ddof=1))
    drawn(found, tmp_path)
    gone = sweeps.compute({"a": {1: [np.nan, np.inf]}}, "tau", "loss")
    assert gone["methods"] == [{"label": "a", "x": [], "mean": [], "std": [], "seeds": [], "lost": [1.0]}]
    drawn(gone, tmp_path)


def test_sweeps_read_their_parameter_from_runs():
    config = {"algorithm": "ghb:tau=5", "partition": "dirichlet:alpha=0.3", "clients_per_round": 3, "wrap": ["ima"]}
    series = Series("a", [line(0, r, r / 10) for r in range(5)], config=config)
    assert sweeps.of_runs([series], "partition.alpha", last=2)["ghb:tau=5 + ima"] == {0.3: [pytest.approx(0.35)]}
    # The parameter is not in the label, and the untrained model of round 0 in no mean.
    both = [series, series._replace(config=config | {"algorithm": "ghb:tau=9"})]
    found = sweeps.of_runs(both, "algorithm.tau", last=9)
    assert found == {"ghb + ima": {5: [pytest.approx(0.25)], 9: [pytest.approx(0.25)]}}
    lost = [series._replace(lines=series.lines[:count], diverged={0: 7}) for count in (5, 1)]  # between evaluations
    for each in (*lost, series._replace(lines=[*series.lines, line(0, 5, 0.5, "nan")])):
        assert np.isnan(sweeps.of_runs([each], "clients_per_round")["ghb:tau=5 + ima"][3]).all()
    lost[0] = series._replace(lines=[*series.lines, line(1, 1, 0.5)])  # a seed that does not count
    said = [curves.last_in_words(lost[:n], "accuracy", 9) for n in (1, 2)]
    assert said == ["the last 4 rounds", "at most the last 4 rounds"]
    # A read-out has the parameters of its own observer.
    observing = config | {"observe": ["swa", "wima:window=5", "wima:window=9"]}
    lines = [line(0, r, r / 10, readout=f"wima{w}") for w in (5, 9) for r in range(5)]
    found = sweeps.of_runs([Series("a", lines, f"wima{w}", 0, observing) for w in (5, 9)], "observe.window")
    assert found == {"ghb:tau=5 + ima: wima": {5: [pytest.approx(0.25)], 9: [pytest.approx(0.25)]}}
    none = sweeps.of_runs([series._replace(config=observing)], "observe.window")
    refused("no read-out to draw over observe.window", sweeps.compute, none, "observe.window")
    twice = series._replace(label="b", config=config | {"batch_size": 9})
    refused("b: another run has.*algorithm.tau alone", sweeps.of_runs, [series, twice], "algorithm.tau")
    other = twice._replace(config=config | {"clients_per_round": 4, "dataset": "mnist"})
    refused("on mnist and on ; draw a figure of each", sweeps.of_runs, [series, other], "clients_per_round")
    for parameter, message in (("nosuch", "--nosuch"), ("partition", "a number"), ("partition.tau", "a number")):
        refused(message, sweeps.of_runs, [series], parameter)
    refused("without a result", sweeps.compute, {"a": {1: []}}, "alpha")


def test_smoothness_is_per_seed_over_the_last_rounds(tmp_path):
    jagged = [line(s, r, 0.5 + 0.1 * (r % 2) * (s + 1)) for s in (0, 1) for r in range(20)]
    smooth = [line(s, r, r / 20) for s in (0, 1) for r in range(20)]
    found = smoothness.compute([Series("jagged", jagged), Series("smooth", smooth)], last=10)
    assert found["methods"][0]["std"] == pytest.approx([0.1 / 2**0.5, 0.2 / 2**0.5])
    assert found["methods"][1]["std"] == pytest.approx([0.05 / 2**0.5] * 2)
    assert found["methods"][1]["mean"] == pytest.approx([np.mean(np.arange(10, 20) / 20)] * 2)
    drawn(found, tmp_path)
    for count, words in ((1, "no evaluation after a round yet"), (2, "1 round")):
        refused(f"'jagged'.*{words}", smoothness.compute, [Series("jagged", jagged[:count])])
    for compute, *more in ((smoothness.compute,), (targets.compute, [0.3])):
        refused("'jagged': metric 'loss2': model has ", compute, [Series("jagged", jagged)], *more, "loss2")
    assert smoothness.draw(found, None, "").axes[0].get_xlabel().endswith("10 rounds\n(mean of 2 seeds, dots: seeds)")
    sparse = [line(0, r, r / 20) for r in (0, 3, 6, 7, 8)]
    found = smoothness.compute([Series("jagged", jagged), Series("sparse", sparse)], last=19)
    assert "over 2 to 18 steps in at most the last 19 rounds" in smoothness.draw(found, None, "").axes[0].get_xlabel()
    fork = smoothness.compute([Series("fork", [line(0, r, r / 20) for r in range(10, 14)])])  # after round 10
    assert (fork["over"], fork["methods"][0]["mean"]) == ("the last 3 rounds", [pytest.approx(0.6)])
    # A run that diverged, also between two evaluations, is not the smoothest one.
    cases = ([line(0, r, 0.1, "nan") for r in range(5)], {}), (smooth, {0: 20, 1: 9}), (jagged[:1], {0: 1})
    found = smoothness.compute([Series(f"lost {len(lines)}", lines, diverged=at) for lines, at in cases])
    assert [method["std"] for method in found["methods"]] == [[None], [None, None], [None]]
    drawn(found, tmp_path)


def test_targets_per_seed(tmp_path):
    fast = Series("fast", [line(s, r, r / 10) for s in (0, 1) for r in range(0, 11, 2)])
    slow = Series("slow", [line(s, r, r / 20 + s / 5) for s in (0, 1) for r in range(0, 11, 2)])
    found = targets.compute([slow, fast], [0.3, 0.6])
    assert found["methods"][0]["rounds"] == [[6, 2], [None, 8]] and found["methods"][1]["rounds"] == [[4, 4], [6, 6]]
    assert found["methods"][0]["mean"] == [4, None] and found["methods"][1]["speedup"] == [1, None]
    assert ("slow", "60 %", "> 10 (1/2 seeds)", "-", "-") in targets.rows(found)
    drawn(found, tmp_path)
    drawn(targets.compute([slow], [0.99]), tmp_path)
    assert targets.draw(found, None, "").axes[0].get_xlabel() == "round (first)\n(mean of 2 seeds)"
    # A seed that diverges, at an evaluation or between two, has not reached the target either.
    cases = ([line(1, 4, 0.1, "nan")], {}), ([], {1: 3})
    lost = [Series("lost", [*fast.lines[:8], *more], diverged=at) for more, at in cases]
    assert [each["rounds"] for each in targets.compute(lost, [0.4])["methods"]] == [[[4, None]]] * 2


def test_targets_in_simulated_time(tmp_path):
    timed = lambda speed: [line(0, r, r / 11) | {"simulated_seconds": speed * r} for r in range(0, 11, 2)]
    both = timed(1.5) + [each | {"seed": 1} for each in timed(20.0)[:3]]  # 6 and 80 seconds; the slow seed stops early
    found = targets.compute([Series("fast", timed(1.5)), Series("both", both, stopped={1})], [0.3, 1])
    refused("accuracy is a fraction, and 60 is more than 1", targets.compute, [Series("a", timed(1))], [0.5, 60])
    assert [row[-1] for row in targets.rows(found)[1:]] == ["6.0", "-", "43.0", "-"]
    assert targets.draw(found, None, "").axes[1].get_xlabel().startswith("simulated time until then (s)")
    assert targets.rows(targets.compute([Series("fork", [line(0, 4, 0.5)])], [0.3]))[1][2:] == ("<= 4", "-", "-")


def test_megabytes_until_a_target_are_those_of_the_evaluations(finished):
    (found,) = targets.compute(sources.series([finished], ["model"]), [0.0, 0.1])["methods"]
    model = 4 * (64 * 8 + 8 + 8 * 10 + 10)
    assert found["bytes"] == [pytest.approx(np.mean(at) * 3 * 2 * model / 1e6) for at in found["rounds"]]


def test_label_histograms(tmp_path):
    dataset = data.load("digits")
    counts = labels.of_partitions(dataset, ["iid", "dirichlet:alpha=0"], 20)
    found = labels.compute(counts, dataset.class_names, range(4))
    one_class = np.array(found["panels"][1]["histogram"])
    assert one_class.shape == (4, 10) and ((one_class > 0).sum(1) == 1).all()
    assert np.array_equal(np.array(counts["iid"])[:4], found["panels"][0]["histogram"])
    drawn(found, tmp_path)
    drawn(labels.compute({"many": np.ones((3, 30), int)}), tmp_path)
    refused("name a partition", labels.compute, {})


def test_who_trained_when(tmp_path):
    """Two fast clients and a slow one, all in training at any time: the slow one's updates are old."""
    seconds = lambda seed, round, ids, work: sampling.Jobs(np.array([1.0, 1.0, 3.5])[ids])
    found = staleness.compute(sampling.asynchronous(3, 1, 3, 100, 0.0, 0.0, seconds), 0, 24)
    trained = dict(zip(found["clients"], found["trained"], strict=True))
    assert trained[0][:2] == [[0.0, 1.0, trained[0][0][2]], [1.0, 2.0, 1]] and trained[2][0] == [0.0, 3.5, 6]
    assert sum(found["counts"]) == 24 and found["counts"][6] >= 2 and found["dropped"] == 0
    drawn(found, tmp_path)
    for sampler, message in ((sampling.uniform_sampler(3, 1), "synchronous"), (None, "0..2")):
        sampler = sampler or sampling.asynchronous(3, 1, 3, 9, 0.0, 0.0, seconds)
        refused(message, staleness.compute, sampler, 0, 3, [0, 3])


def table(count, unseen=0):
    draw = np.random.default_rng(count)
    seen = np.arange(count) < count - unseen
    values = {f"{name}.{metric}": draw.random(count) for name in ("model", "wima5") for metric in ("accuracy", "loss")}
    tuned = np.where(seen, draw.random(count), np.nan)
    return {"seen": seen, "client": np.arange(count), **values, "model.finetune.accuracy": tuned}


def test_clients_are_sorted_and_unseen_ones_are_apart(tmp_path):
    first, second = table(30, unseen=10), table(12)
    found = clients.compute({"mime": first, "b": second})
    assert [(curve["label"], curve["seen"], len(curve["values"])) for curve in found["curves"]] == [
        ("mime: model", True, 20), ("mime: model", False, 10), ("mime: wima5", True, 20), ("mime: wima5", False, 10),
        ("mime: model.finetune", True, 20),
        ("b: model", True, 12), ("b: wima5", True, 12), ("b: model.finetune", True, 12),
    ]  # fmt: skip
    curve, ranks = found["curves"][1], clients.draw(found, None, "").axes[1].lines
    assert curve["values"] == sorted(first["model.accuracy"][20:]) and curve["mean"] == np.mean(curve["values"])
    one = clients.compute({"a": first, "b": second}, "loss", ["wima5"])
    assert [curve["label"] for curve in one["curves"]] == ["a", "a", "b"] and len({l.get_color() for l in ranks}) == 6
    drawn(one, tmp_path)
    refused("readouts=wima6 must be one of .* Did you mean 'wima5'", clients.compute, {"a": table(3)}, models=["wima6"])
    refused("no run has the metric 'error'. Available: accuracy, loss", clients.compute, {"a": table(3)}, "error")
