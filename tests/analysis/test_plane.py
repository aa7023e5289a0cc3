"""The plane through three models: key g12 of golden_ima_wsm.json, and identities."""

import jax
import numpy as np
import pytest

from fedwin import analysis
from tests.analysis.common import DATA, array, bowl, network


def test_golden_g12(same):
    g = DATA["g12_landscape"]
    three = [{"w": array(w)} for w in g["w"]]
    plane = analysis.plane(*three)
    same(plane.u, g["u_hat"])
    same(plane.v, g["v_hat"])
    same(analysis.corners(plane), g["coords"])
    same(analysis.place(plane, analysis.mix([1 / 3] * 3, three))[:2], g["coords_of_mean"])
    inside = analysis.point(plane, 0.3, 0.7)
    same(inside["w"], g["model_at_0p3_0p7"])
    same(bowl(inside), g["loss_at_0p3_0p7"])
    a, b, residual = analysis.place(plane, {"w": array(g["projection"]["model"])})
    same([a, b], g["projection"]["coords"])
    same(residual, g["projection"]["residual"])
    same([bowl(analysis.mix([1 - s, s], three[:2])) for s in g["line_alphas"]], g["line_loss"])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_plane_goes_through_its_models(scale):
    # Close together far from the origin, as the models of successive rounds are.
    base = network(9)
    three = [analysis.mix([1, 0.01 * scale], [base, network(i)]) for i in range(3)]
    plane = analysis.plane(*three)
    np.testing.assert_allclose([plane.u @ plane.u, plane.v @ plane.v, plane.u @ plane.v], [1, 1, 0], atol=1e-12)
    places = np.array([analysis.place(plane, model)[:2] for model in three])
    np.testing.assert_allclose(places, analysis.corners(plane), rtol=1e-9, atol=1e-9 * plane.a2)
    for model, (a, b) in zip(three, analysis.corners(plane)):
        jax.tree.map(np.testing.assert_array_equal, analysis.point(plane, a, b), model)
    mean = analysis.place(plane, analysis.mix([1 / 3] * 3, three))
    # The mean is a float32 model.
    rounding = 1e-6 * np.linalg.norm(plane.origin)
    np.testing.assert_allclose(mean[:2], analysis.corners(plane).mean(0), atol=rounding)
    assert mean.residual < rounding
    a, b, _ = analysis.place(plane, analysis.point(plane, 0.3 * plane.a2, -0.7 * plane.b3))
    np.testing.assert_allclose([a, b], [0.3 * plane.a2, -0.7 * plane.b3], atol=rounding)


def test_the_grid_surrounds_the_models():
    plane = analysis.plane(*(network(i) for i in range(3)))
    a, b = analysis.grid(plane, points=np.int64(21))
    assert len(a) == len(b) == 21
    low, high = analysis.corners(plane).min(0), analysis.corners(plane).max(0)
    np.testing.assert_allclose([a[0], a[-1]], [low[0] - 0.2 * plane.a2, high[0] + 0.2 * plane.a2])
    np.testing.assert_allclose([b[0], b[-1]], [low[1] - 0.2 * plane.b3, high[1] + 0.2 * plane.b3])
