"""Figure of the line between two models: its end points are the models."""

import numpy as np
import pytest

from experiments.figures import line, models
from fedwin.errors import UserError
from fedwin.runs.metrics_log import read_lines
from tests.experiments.figures.common import drawn


def test_the_ends_are_the_evaluations_of_the_run(finished, tmp_path):
    trained, ends = models.named([f"{finished}@{round}" for round in (2, 4)])
    found = line.compute(trained, ends, [-0.5, 0, 0.5, 1])
    lines = {one["round"]: one["model"] for one in read_lines(finished / "metrics.jsonl") if one["seed"] == 0}
    for round, at in ((2, 1), (4, 3)):
        for metric in ("loss", "accuracy"):
            assert found["splits"]["test"][metric][at] == pytest.approx(lines[round][metric], rel=1e-5)
    assert found["splits"]["train"]["loss"] != found["splits"]["test"]["loss"] and found["distance"] > 0
    drawn(found, tmp_path)
    # The places where the two models are belong to the usual ones.
    assert {0.0, 1.0} <= set(np.linspace(line.BEGIN, line.END, line.POINTS))
    with pytest.raises(UserError, match="1 model"):
        line.compute(trained, {"one": trained.variables})
