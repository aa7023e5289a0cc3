"""Forgetting: key g15 of golden_ima_wsm.json."""

from fedwin import analysis
from tests.analysis.common import DATA, array


def test_golden_g15_forgetting(same):
    g = DATA["g15_forgetting"]
    matrix = analysis.forgetting(array(g["pre"]), array(g["post"]))
    same(matrix, g["F_model_by_dataset"])
    same(-matrix, g["heatmap_post_minus_pre"])
    same(analysis.per_model(matrix), g["F_per_model"])
    same(analysis.per_model(matrix.T), g["F_per_dataset"])
    same(analysis.mean_forgetting(matrix), g["mean_forgetting"])
