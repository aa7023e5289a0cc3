"""Summaries of accuracy curves: key g16 of golden_ima_wsm.json."""

import numpy as np
import pytest

from fedwin import analysis
from tests.analysis.common import DATA
from tests.refusals import refused


def test_golden_g16_metrics(same):
    g = DATA["g16_metrics"]
    rounds, baseline = (analysis.rounds_to_target(g[name], g["target"]) for name in ("acc", "base"))
    assert (rounds, baseline) == (g["rounds"], g["rounds_base"])
    assert analysis.rounds_to_target(g["base"], 0.7) is g["unreached"] is None
    same(analysis.speedup(baseline, rounds), g["speedup"])
    same(analysis.mean_last(g["acc"], 3), g["mean_last_3"])
    same([analysis.speedup(*pair) for pair in ((394, 309), (394, 201), (392, 193))], [*g["table_speedups"].values()])


def test_curves():
    # A dip below the target afterwards does not matter, nor does a NaN.
    assert analysis.rounds_to_target([0.1, np.nan, 0.5, 0.2], 0.5) == 3
    assert analysis.rounds_to_target([0.1, 0.4, 0.6], 0.5, rounds=[10, 20, 30]) == 30
    # The float32 that is nearest to 0.7 is less.
    assert analysis.rounds_to_target([0.1, np.float32(0.7)], 0.7) == 2
    assert {analysis.speedup(*pair) for pair in ((None, 3), (3, None), (3, 0), (0, 3))} == {None}
    np.testing.assert_allclose(analysis.mean_last([[0, 0], [0.2, 0.4], [0.6, 0.8]], np.int64(2)), 0.5)


def test_round_to_round_std_compares_rounds_of_one_distance_only():
    accuracy, rounds = [0.1, 0.5, 0.9, 0.8, 0.6], [0, 5, 10, 11, 12]
    assert analysis.round_to_round_std(accuracy, rounds) == pytest.approx(np.sqrt((0.1**2 + 0.2**2) / 4))
    assert analysis.round_to_round_std(accuracy, rounds, step=5) == pytest.approx(np.sqrt(0.4**2 / 2))
    refused(["3 round(s) apart"], analysis.round_to_round_std, accuracy, rounds, step=3)
    refused("2 rounds, 5 accuracies", analysis.round_to_round_std, accuracy, [1, 2])
    refused("evaluate more often", analysis.round_to_round_std, [0.1])
