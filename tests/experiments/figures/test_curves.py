"""Curves of runs and of stored results."""

import lzma

import numpy as np

from experiments import records
from experiments.figures import curves, sources
from experiments.figures.sources import Series
from fedwin.errors import StorageError
from tests.experiments.figures.common import drawn, line
from tests.refusals import disk_is_full, refused


def test_curves_are_equally_dense_everywhere():
    lines = [{"seed": s, "round": r, "model": {"accuracy": r / 10}} for s in (0, 1) for r in (0, 5, 10, 11, 12, 15)]
    rounds, values = curves.curve(Series("it", lines), every=5)
    assert rounds.tolist() == [0, 5, 10, 15] and values.shape == (2, 4)
    assert np.array_equal(curves.curve(Series("it", lines))[0], [0, 5, 10, 11, 12, 15])


def test_a_diverged_seed_is_in_no_curve():
    lines = [line(s, r, s) for s in (0, 1) for r in (0, 5)] + [line(0, 10, 0)]
    rounds, values = curves.curve(Series("it", lines))
    assert rounds.tolist() == [0, 5, 10] and values.tolist() == [[0, 0, 0]]
    lines += [line(1, 10, 1, "nan")]
    assert curves.curve(Series("it", lines))[1].tolist() == [[0, 0, 0]]
    assert curves.curve(Series("it", [line for line in lines if line["seed"] == 1]))[1].tolist() == [[1, 1, 1]]


def test_a_seed_that_was_stopped_early_ends_the_curve_of_all():
    """The mean is over the same seeds everywhere: neither is the seed left out, nor does it leave the mean midway."""
    lines = [line(seed, r, 0.5) for seed, last in ((0, 4), (1, 8)) for r in range(0, last + 1, 2)]
    rounds, values = curves.curve(Series("it", lines))
    assert rounds.tolist() == [0, 2, 4, 6, 8] and len(values) == 1
    rounds, values = curves.curve(Series("it", lines, stopped={0}))
    assert rounds.tolist() == [0, 2, 4] and len(values) == 2


def test_pictures(tmp_path):
    lines = [line(s, r, r / 20 + s / 50, 2.0 / (r + 1)) for s in (0, 1) for r in range(11)]
    many = [Series(f"run {n}", lines, since=n) for n in range(6)]
    found = curves.compute(many, target=0.3, limits=(0, 1))
    assert found["curves"][2]["rounds"] == list(range(2, 11)) and found["limits"] == [0, 1]
    drawn(found, tmp_path)
    assert curves.compute([many[0]._replace(diverged={1: 12})])["curves"][0]["lost"] == [12]  # after its evaluations
    drawn(curves.compute(many[:2], "loss", log=True), tmp_path)
    drawn(curves.compute([Series("nan", [line(0, 0, "nan"), line(0, 1, 0.5)])]), tmp_path)


def test_the_axis_shows_bytes_and_time(tmp_path):
    lines = [
        line(s, r, r / 20) | {"bytes_down": 3e6 * r, "bytes_up": 1e6 * r, "simulated_seconds": r * (s + 1.0)}
        for s in (0, 1)
        for r in (0, 5, 10)
    ]
    # Seed 2 has not ended; it counts nowhere.
    source = Series("a", [*lines, *({**line, "seed": 2, "simulated_seconds": 99.0} for line in lines[:2])], since=5)
    assert curves.compute([source], x="bytes")["curves"][0]["x"] == [20, 40]
    found = curves.compute([source], x="simulated_seconds")
    assert found["curves"][0]["x"] == [7.5, 15] and found["curves"][0]["rounds"] == [5, 10]
    figure = curves.draw(found, None, "")
    assert figure.axes[0].get_xlabel() == "simulated time (s) (mean of 2 seeds, band: 1 std)"
    assert figure.axes[0].lines[-1].get_xdata().tolist() == [7.5, 15]
    late = [Series("b", [line(0, 0, 0.5)])]
    refused("'b' has no .* in round 0; train it with --clock", curves.compute, late, x="simulated_seconds")


def test_runs_and_kept_results_are_read_alike(finished, tmp_path):
    run = records.read(finished)
    lines, config = run.lines, {name: value for name, value in run.config.items() if name != "batch_size"}
    assert run.name == "fedavg" and run.config["num_clients"] == 8 and len(lines) == 10
    records.write(tmp_path / "stored.tar.xz", records.Record({"config": config | {"algorithm": "mine"}}, lines))
    both = sources.series([finished, tmp_path / "stored.tar.xz"], ["wima2"])
    assert [one.label for one in both] == ["fedavg", "mine"] and both[0].readout == "wima2" and both[1].lines == lines
    assert both[1].config["batch_size"] == 32  # the default, which a packed run leaves out
    every = curves.draw(curves.compute(sources.series([finished], labels=["_A"])), None, "").axes[0]
    assert [text.get_text() for text in every.get_legend().texts] == [" _A: model", " _A: wima2"]
    assert sources.describe(both) == "digits, dirichlet:alpha=0.3, digits_mlp:hidden=8, 2 seeds"
    single = sources.Series("one", [line for line in lines if line["seed"] == lines[0]["seed"]])
    assert [sources.describe(each)[-8:] for each in ([single], [single, both[0]])] == ["1 seed", " 2 seeds"]
    first, second = curves.compute(both)["curves"]
    assert first["values"] == second["values"]


def test_misuse(finished, tmp_path):
    only = tmp_path / "only.tar.xz"
    records.write(only, records.Record({"config": {"algorithm": "fedavg"}}, []))
    whole = only.read_bytes()
    for content in (b"x", lzma.compress(b""), lzma.compress(b"x" * 999), whole[:-20], whole[:99] + b"?" + whole[100:]):
        (tmp_path / "bad.tar.xz").write_bytes(content)
        refused("bad.tar.xz is damaged", sources.series, [tmp_path / "bad.tar.xz"])
    for call, message in (
        (lambda: sources.series([only]), "no evaluation yet"),
        (lambda: sources.series([tmp_path / "gone.tar.xz"]), "No such file"),
        (lambda: sources.series([tmp_path / "gone"]), "neither the directory"),
        (lambda: sources.series([finished], ["wima3"]), "'wima2'"),
        (lambda: sources.series([finished], labels=["a", "b"]), "2 different label"),
        (lambda: sources.series([finished, finished], labels=["a", "a"]), "1 different label"),
        (lambda: curves.compute([Series("a", [line(0, r, 0.5) for r in (0, 5)])], every=9), "'a': .* multiple of 9"),
        (lambda: curves.compute(sources.series([finished]), "acuracy"), "^'fedavg: model': .*model has accuracy, loss"),
        (lambda: curves.compute([], limits=(0.9, 0.1)), "target and lowest < highest must be"),
        (lambda: curves.compute([], target=0.0, log=True), "finite numbers > 0 with --log"),
        (lambda: curves.compute([], limits=(50, None)), "accuracy is a fraction, and 50 is more than 1"),
        (lambda: curves.compute([Series("late", [line(0, 1, 0.5)], since=2)]), "from round 2"),
    ):
        refused(message, call)


def test_a_picture_that_cannot_be_written_names_the_remedy(tmp_path, monkeypatch):
    found = curves.compute([Series("a", [line(0, 0, 0.5)])])
    monkeypatch.setattr("os.replace", disk_is_full)
    words = "p.png can't be written .*; make room, then run the same command again"
    refused(words, curves.draw, found, tmp_path / "p.png", "", error=StorageError)
