"""Linear CKA: key g14 of golden_ima_wsm.json, and identities."""

import numpy as np
import pytest

from fedwin import analysis
from tests.analysis.common import DATA, RANDOM, array


def test_golden_g14_cka(same):
    g = DATA["g14_cka"]
    x, y = array(g["X"]), array(g["Y"])
    same(analysis.linear_cka(x, y), g["cka"])
    same(analysis.mean_cka([x, y, x]), (2 * g["cka"] + 1) / 3)
    assert abs(analysis.linear_cka(x, y) - g["uncentered_wrong_value"]) > 0.01


@pytest.mark.parametrize("shape", [(50, 4), (6, 40)], ids=["features", "gram"])
def test_cka_is_invariant(shape):
    random = RANDOM(0)
    x, y = random.standard_normal(shape), random.standard_normal((shape[0], 3))
    value = analysis.linear_cka(x, y)
    rotation, _ = np.linalg.qr(random.standard_normal((shape[1], shape[1])))
    shift = 10 * random.standard_normal(shape[1])
    assert 0 <= value <= 1
    for same_value in (analysis.linear_cka(y, x), analysis.linear_cka(7 * x @ rotation + shift, y)):
        np.testing.assert_allclose(same_value, value, rtol=1e-10)
    np.testing.assert_allclose(analysis.linear_cka(x, x @ rotation), 1, rtol=1e-12)
    # Columns of zeros change nothing but the form that is computed.
    wide = np.pad(x, ((0, 0), (0, 100)))
    np.testing.assert_allclose(analysis.linear_cka(wide, y), value, rtol=1e-10)
    # Axes beyond the first are coordinates.
    np.testing.assert_allclose(analysis.linear_cka(x.reshape(shape[0], 2, -1), y), value, rtol=1e-12)


def test_cka_of_constant_outputs_is_nan():
    x = RANDOM(0).standard_normal((5, 3))
    assert np.isnan(analysis.linear_cka(x, np.full((5, 3), 0.1))) and np.isnan(analysis.linear_cka(x[:1], x[:1]))
