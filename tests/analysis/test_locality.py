"""Distances from the global model: the lemma in key g13 of golden_ima_wsm.json."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import analysis
from tests.analysis.common import DATA, ONES, RANDOM, array, check_refused


def test_golden_g13_lemma(same):
    g = DATA["g13_decomposition"]["lemma1"]
    clients = [{"w": array(w)} for w in g["w"]]
    centre = analysis.mix(g["p"], clients)
    output = lambda model: (np.asarray(model["w"], float) @ np.asarray(g["x"])) ** 2
    ensemble = np.dot(g["p"], [output(client) for client in clients])
    same(centre["w"], g["w_gm"])
    same(output(centre), g["gm_output"])
    same(ensemble, g["wens"])
    same(ensemble - output(centre), g["gap"])
    same(analysis.locality(clients, centre).max(), g["locality"])
    # The remainder of Lemma 1 is a square of the distances.
    away = [{"w": client["w"] - centre["w"]} for client in clients]
    same(np.dot(g["p"], [output(a) for a in away]), g["gap"])


def test_linear_models_equal_their_ensemble():
    random = RANDOM(0)
    kernels = [{"w": jnp.asarray(random.standard_normal((4, 2)))} for _ in range(3)]
    x, p = random.standard_normal((7, 4)), [0.5, 0.3, 0.2]
    outputs = np.stack([x @ np.asarray(k["w"]) for k in kernels])
    merged = x @ np.asarray(analysis.mix(p, kernels)["w"])
    np.testing.assert_allclose(np.einsum("k,knc->nc", p, outputs), merged, atol=1e-6)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: analysis.locality([], ONES), "no client"),
    ],
)
def test_bad_input_is_one_line(call, words):
    check_refused(call, words)
