"""Forgetting: key g15 of golden_ima_wsm.json, and a client that cannot forget."""

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import analysis, losses
from tests.analysis.common import DATA, RANDOM, array


def test_golden_g15_forgetting(same):
    g = DATA["g15_forgetting"]
    matrix = analysis.forgetting(array(g["pre"]), array(g["post"]))
    same(matrix, g["F_model_by_dataset"])
    same(-matrix, g["heatmap_post_minus_pre"])
    same(analysis.per_model(matrix), g["F_per_model"])
    same(analysis.per_model(matrix.T), g["F_per_dataset"])
    same(analysis.mean_forgetting(matrix), g["mean_forgetting"])


def test_a_one_class_client_forgets_nothing_under_wsm():
    random = RANDOM(0)
    counts = np.array([[6, 0, 0], [3, 3, 0], [0, 4, 8]])
    labels = [np.repeat(np.arange(3), row) for row in counts]
    xs = [jnp.asarray(np.eye(3)[y] + 0.1 * random.standard_normal((len(y), 3)), jnp.float32) for y in labels]
    start = jnp.asarray(random.standard_normal((3, 3)), jnp.float32)
    shares = lambda row: losses.class_proportions({"train": row}, "train")
    loss = lambda w, x, y, row: jnp.mean(losses.nll(x @ w, y, shares(row)))
    step = jax.jit(lambda w, *data: w - 2.0 * jax.grad(loss)(w, *data))

    def trained(k):
        w = start
        for _ in range(20):
            w = step(w, xs[k], jnp.asarray(labels[k]), jnp.asarray(counts[k]))
        return w

    accuracies = lambda w: [float(np.mean(np.argmax(x @ w, -1) == y)) for x, y in zip(xs, labels)]
    matrix = analysis.forgetting(accuracies(start), [accuracies(trained(k)) for k in range(3)])
    assert (matrix[0] == 0).all() and (np.diag(matrix)[1:] < 0).all()
    assert (analysis.forgetting(accuracies(start), [accuracies(start)] * 3) == 0).all()
