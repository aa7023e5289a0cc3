"""Figures of trained models: planes, lines, factors of the loss and forgetting, against direct evaluations."""

import dataclasses
import types

import numpy as np
import pytest

from experiments import figure
from experiments.figures import factors, forgetting, line, models, plane, probing
from fedwin import analysis, client_models, load, sampling
from fedwin.runs.metrics_log import read_lines
from tests.refusals import refused

from .common import drawn


def test_points_of_a_plane_are_direct_evaluations(finished, tmp_path):
    addresses = [*(f"{finished}@{round}" for round in (1, 2, 3)), f"{finished}:wima2"]
    trained = models.loaded(list(map(models.address, addresses)), seed=4)
    _, named = models.named(addresses, seed=4)
    items = list(named.items())
    on_plane = plane.compute(trained[0], dict(items[:3]), dict(items[3:]), points=5)
    test = trained[0].prepared.dataset.test
    by_label = {mark["label"]: mark for mark in on_plane["points"]}
    assert list(by_label) == ["round 1", "round 2", "round 3", "mean of the three", "round 4: wima2"]
    for one, label in zip(trained, named):
        logits = np.asarray(one.logits(test["x"]))
        assert by_label[label]["error"] == pytest.approx((logits.argmax(-1) != test["y"]).mean(), abs=1e-6)
        losses = analysis.client_losses(logits[None], test["y"], "ce")
        assert by_label[label]["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    through = analysis.plane(*list(named.values())[:3])
    inside = analysis.point(through, on_plane["a"][3], on_plane["b"][1])
    at = dataclasses.replace(trained[0], variables=inside)
    error = (np.argmax(np.asarray(at.logits(test["x"])), -1) != test["y"]).mean()
    assert on_plane["error"][1][3] == pytest.approx(error, abs=1.5 / len(test["y"]))
    assert np.shape(on_plane["loss"]) == (5, 5) and on_plane["evaluations"] == 25 + 3 + 1 + 1
    # A model off the plane has its distance.
    mark = on_plane["points"][-1]
    place = analysis.place(through, list(named.values())[3])
    assert (mark["a"], mark["b"], mark["residual"]) == pytest.approx(place) and mark["role"] == "further"
    # Points that are not finite are left white.
    drawn(on_plane | {"loss": [[None] * 5, *on_plane["loss"][1:]]}, tmp_path)
    one, two = list(named.values())[:2]
    refused("one line", plane.compute, trained[0], {"a": one, "b": two, "c": one})


@pytest.mark.slow
def test_clients_receive_the_model_and_not_the_read_out_of_the_address(finished):
    options = types.SimpleNamespace(clients="012", seed=0, data_dir=None, labels=[], points=2, examples=50)
    *_, received, average = figure._plane([f"{finished}@3:wima2"], options)[0]["points"]
    assert [received["label"], average["label"]] == ["received model", "fedavg: wima2, round 3"]
    trained, at = models.named([f"{finished}@3", f"{finished}@3:wima2"])
    through = analysis.plane(*client_models(trained, [0, 1, 2]))
    assert [received["a"], average["a"]] == pytest.approx([analysis.place(through, one).a for one in at.values()])


def test_the_ends_of_a_line_are_the_evaluations_of_the_run(finished, tmp_path):
    trained, ends = models.named([f"{finished}@{round}" for round in (2, 4)])
    found = line.compute(trained, ends, points=5)  # s = -0.5, 0, 0.5, 1, 1.5
    lines = {one["round"]: one["model"] for one in read_lines(finished / "metrics.jsonl") if one["seed"] == 0}
    for round, at in ((2, 1), (4, 3)):
        for metric in ("loss", "accuracy"):
            assert found["splits"]["test"][metric][at] == pytest.approx(lines[round][metric], rel=1e-5)
    assert found["splits"]["train"]["loss"] != found["splits"]["test"]["loss"] and found["distance"] > 0
    drawn(found, tmp_path)
    # The places where the two models are belong to the usual ones.
    assert {0.0, 1.0} <= set(np.linspace(line.BEGIN, line.END, line.POINTS))


def test_factors_add_up_and_locality_is_that_of_the_clients_mean(finished, tmp_path):
    found = factors.compute({"fedavg": finished}, rounds=[4], clients=[1, 2, 5], count=200)
    (run,) = found["runs"]
    assert run["rounds"] == [4] and found["replicas"] == 2
    parts = np.sum([run[name] for name in ("bias_squared", "variance", "covariance")], 0)
    np.testing.assert_allclose(parts, run["ensemble_loss"], rtol=1e-6)
    assert min(run["variance"]) > 0 and all(0 <= cka <= 1 for cka in run["cka"])
    # Clients know their own data better than others', all the more where data differ.
    assert all(own < other for own, other in zip(run["train_bias"], run["heter_bias"]))
    assert all(own < other for own, other in zip(run["train_error"], run["heter_error"]))
    assert run["locality_mean"][0] < run["locality"][0]
    trained = load(finished, round=4)
    clients = client_models(trained, [1, 2, 5])
    sizes = trained.prepared.federations[0].sizes[[1, 2, 5]]
    center = analysis.mix(sizes / sizes.sum(), clients)
    assert run["locality"][0] == pytest.approx(analysis.locality(clients, center).max(), rel=1e-6)
    drawn(found | {"replicas": 1, "runs": [run | {"variance": [None], "covariance": [None]}]}, tmp_path)


@pytest.mark.slow
def test_forgetting_is_of_direct_evaluations(finished, tmp_path):
    found = forgetting.compute({"fedavg": finished}, round=3, clients=[0, 6, 2])
    trained, (run,) = load(finished, round=3), found["runs"]
    assert found["clients"] == [0, 6, 2] and run["on"] == "held-out" and run["round"] == 3
    federation = trained.prepared.federations[0]
    for row, model in enumerate([trained.variables, *client_models(trained, [0, 6, 2])]):
        for column, client in enumerate([0, 6, 2]):
            rows = federation.validation.client(client)
            x = trained.normalize({"x": federation.dataset.train["x"][rows]})
            right = trained.model.apply(model, x, None, False).logits.argmax(-1) == federation.dataset.train["y"][rows]
            assert [run["before"], *run["after"]][row][column] == pytest.approx(float(right.mean()))
    np.testing.assert_allclose(run["forgetting"], np.array(run["before"]) - run["after"], atol=1e-12)
    drawn(found, tmp_path)
    titles = [axis.get_title().split("\n") for axis in forgetting.draw(found, None, "").axes]
    assert max(map(len, sum(titles, []))) <= 35  # of panels of three clients
    local = dataclasses.replace(trained.prepared, config=dataclasses.replace(trained.prepared.config, wrap=["local"]))
    refused(["wrap=local", "different"], forgetting._of, dataclasses.replace(trained, prepared=local), [0, 6])


def test_the_next_rounds_cohort_by_default(finished):
    trained = load(finished)
    assert probing.cohort(trained) == sorted(sampling.cohort(0, 4, 8, 3).tolist())
    assert len(probing.cohort(trained, most=2)) == 2 and probing.cohort(trained, [5, 1]) == [5, 1]


def test_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("run", "odd@3", "odd:x"):
        (tmp_path / name).mkdir()
    for text, wanted in (
        ("run", ("run", None, "model")),
        ("run@3", ("run", 3, "model")),
        ("run@3:wima2", ("run", 3, "wima2")),
        ("odd@3", ("odd@3", None, "model")),
        ("odd@3@4", ("odd@3", 4, "model")),
        ("odd:x:ema", ("odd:x", None, "ema")),
    ):
        assert models.address(text) == wanted
    refused("no such run", models.address, "run@x")
