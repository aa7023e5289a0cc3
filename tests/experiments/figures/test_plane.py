"""Figure of the plane through three models: its corners are the models; storing and redrawing."""

import dataclasses

import numpy as np
import pytest

from experiments.figures import models, plane
from fedwin import analysis
from fedwin.errors import UserError
from tests.experiments.figures.common import drawn


@pytest.fixture(scope="module")
def loaded(finished):
    addresses = [*(f"{finished}@{round}" for round in (1, 2, 3)), f"{finished}:wima2"]
    return models.loaded(list(map(models.address, addresses)), seed=4), models.named(addresses, seed=4)[1]


@pytest.fixture(scope="module")
def found(loaded):
    trained, named = loaded
    items = list(named.items())
    return plane.compute(trained[0], dict(items[:3]), dict(items[3:]), points=5)


def test_points_are_direct_evaluations(loaded, found):
    trained, named = loaded
    test = trained[0].prepared.dataset.test
    by_label = {mark["label"]: mark for mark in found["points"]}
    assert list(by_label) == [*list(named)[:3], "mean of the three", list(named)[3]]
    assert list(named)[0] == "round 1" and list(named)[3] == "round 4: wima2"
    for one, label in zip(trained, named):
        logits = np.asarray(one.logits(test["x"]))
        assert by_label[label]["error"] == pytest.approx((logits.argmax(-1) != test["y"]).mean(), abs=1e-6)
        losses = analysis.client_losses(logits[None], test["y"], "ce")
        assert by_label[label]["loss"] == pytest.approx(losses.mean(), rel=1e-5)


def test_the_grid_is_where_it_says(loaded, found):
    trained, named = loaded
    through = analysis.plane(*list(named.values())[:3])
    at = dataclasses.replace(trained[0], variables=analysis.point(through, found["a"][3], found["b"][1]))
    test = trained[0].prepared.dataset.test
    error = (np.argmax(np.asarray(at.logits(test["x"])), -1) != test["y"]).mean()
    assert found["error"][1][3] == pytest.approx(error, abs=1.5 / len(test["y"]))
    assert np.shape(found["loss"]) == (5, 5) and found["evaluations"] == 25 + 3 + 1 + 1


def test_a_model_off_the_plane_reports_its_distance(loaded, found):
    _, named = loaded
    place = analysis.place(analysis.plane(*list(named.values())[:3]), list(named.values())[3])
    mark = found["points"][-1]
    assert (mark["a"], mark["b"], mark["residual"]) == pytest.approx(place) and mark["role"] == "further"


def test_picture(found, tmp_path):
    drawn(found, tmp_path)


def test_a_point_that_is_not_finite_is_left_white(found, tmp_path):
    drawn(found | {"loss": [[None] * 5, *found["loss"][1:]]}, tmp_path)


def test_misuse(loaded):
    trained, named = loaded
    with pytest.raises(UserError, match="2 model"):
        plane.compute(trained[0], dict(list(named.items())[:2]))
    with pytest.raises(UserError, match="one line"):
        one, two = list(named.values())[:2]
        plane.compute(trained[0], {"a": one, "b": two, "c": one})
