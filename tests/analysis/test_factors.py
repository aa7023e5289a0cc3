"""Factors of the loss, distances from the global model, forgetting: keys g13 and g15 of golden_ima_wsm.json."""

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import analysis, losses
from tests.analysis.common import DATA, RANDOM, array


def test_golden_g13_factors(same):
    g = DATA["g13_decomposition"]
    f, y = array(g["f"]), array(g["y"])
    for weights in (None, g["p"], [40, 20, 40]):
        ours = analysis.factors(f, y, np.array(g["owner"]), weights)
        names = "bias_squared", "variance", "covariance", "wens_expected_loss"
        same(ours[:4], [g[name] for name in names])
        same(ours.train_biases, g["train_bias_sq_per_client"])
        same(ours.heter_biases, g["heter_bias_sq_per_client"])
        same([ours.train_bias, ours.heter_bias], [g["train_bias"], g["heter_bias"]])
        same(ours.bound, g["jensen_bound"])
        assert not ours.plug_in


def test_losses_of_clients_and_whose_examples_they_are():
    random = RANDOM(0)
    logits, labels, owner = 5 * random.standard_normal((3, 12, 4)), random.integers(0, 4, 12), np.arange(12) % 3
    ce = analysis.client_losses(logits, labels, "ce")
    for k in range(3):
        expected = losses.nll(jnp.asarray(logits[k], jnp.float32), jnp.asarray(labels))
        np.testing.assert_allclose(ce[k], expected, rtol=1e-5, atol=1e-6)
    mse = analysis.client_losses(logits, labels, "mse")
    outputs = np.asarray(jax.nn.softmax(jnp.asarray(logits, jnp.float32)))[None]
    ours = analysis.factors(outputs, np.eye(4)[labels], owner)
    np.testing.assert_allclose(analysis.by_ownership(mse, owner), [ours.train_biases, ours.heter_biases], rtol=1e-5)
    # A logit of a thousand is no overflow.
    assert np.isfinite(analysis.client_losses(1000 * logits, labels, "ce")).all()


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
    same(np.dot(g["p"], [output({"w": client["w"] - centre["w"]}) for client in clients]), g["gap"])


def test_golden_g15_forgetting(same):
    g = DATA["g15_forgetting"]
    matrix = analysis.forgetting(array(g["pre"]), array(g["post"]))
    same(matrix, g["F_model_by_dataset"])
    same(-matrix, g["heatmap_post_minus_pre"])
    same(analysis.per_model(matrix), g["F_per_model"])
    same(analysis.per_model(matrix.T), g["F_per_dataset"])
    same(analysis.mean_forgetting(matrix), g["mean_forgetting"])
