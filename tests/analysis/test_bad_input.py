"""Bad input of all analyses is one line."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import analysis, testing
from tests.analysis.common import ONES, bowl, check_refused, network

SQUARE = np.zeros((1, 2, 2))
LINE = [{"w": i * jnp.ones(2)} for i in range(3)]


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: analysis.recomputed(testing.classification().setting.model, network(0), []), "no batch"),
        (lambda: analysis.factors(np.zeros((1, 2, 3)), np.zeros(2), [0, 1]), "(1, 2, 3)"),
        (lambda: analysis.factors(SQUARE, np.zeros(2), [0, 2]), "0..1"),
        (lambda: analysis.factors(SQUARE, np.zeros(2), [0.0, 1.0]), "integers"),
        (lambda: analysis.factors(SQUARE, np.zeros(2), [0, 0]), "has no examples"),
        (lambda: analysis.factors(SQUARE[:, :1], np.zeros(2), [0, 0]), "two clients are needed"),
        (lambda: analysis.factors(SQUARE, np.zeros(2), [0, 1], [1, -1]), "weights"),
        (lambda: analysis.client_losses(SQUARE, [0, 1], "hinge"), "'hinge'"),
        (lambda: analysis.client_losses(SQUARE, [0, 2]), "0..1"),
        (lambda: analysis.locality([], ONES), "clients is empty"),
        (lambda: analysis.forgetting([0.1, 0.2], [[0.1, 0.2]]), "(1, 2)"),
        (lambda: analysis.per_model([[0.1]]), "K >= 2"),
        (lambda: analysis.linear_cka(np.ones((3, 2)), np.ones((4, 2))), "3 and 4 examples"),
        (lambda: analysis.linear_cka([[1, 2], [3]], np.ones((2, 2))), "rectangular"),
        (lambda: analysis.mean_cka([np.ones((3, 2))]), "1 client"),
        (lambda: analysis.rounds_to_target([0.1, 0.2], np.nan), "target=nan"),
        (lambda: analysis.rounds_to_target([0.1, 0.2], 0.1, rounds=[2, 1]), "increasing"),
        (lambda: analysis.speedup(0, 3), "counted from 1"),
        (lambda: analysis.mean_last([0.1, 0.2], 3), "1..2"),
        (lambda: analysis.traffic((1, 1), -1, 2), "-1 rounds"),
        (lambda: analysis.line(ONES, {"w": jnp.ones(3)}, bowl), "model 1 differs"),
        (lambda: analysis.line(ONES, ONES, bowl, [0, np.nan]), "NaN"),
        (lambda: analysis.line(ONES, ONES, bowl, []), "line: s"),
        (lambda: analysis.line({}, {}, bowl), "no model"),
        (lambda: analysis.mix([1.0], [ONES, ONES]), "1 coefficient"),
        (lambda: analysis.mix([], []), "mix: coefficients"),
        (lambda: analysis.plane(ONES, ONES, {"w": jnp.array([1.0, 2.0])}), "first two models are equal"),
        (lambda: analysis.plane(*LINE), "one line"),
        (lambda: analysis.plane(ONES, {"w": jnp.zeros(2)}, {"w": jnp.array([jnp.nan, 0])}), "not finite"),
        (lambda: analysis.grid(analysis.plane(*(network(i) for i in range(3))), margin=-1.0), "margin=-1.0"),
        (lambda: analysis.grid(analysis.plane(*(network(i) for i in range(3))), points=1), "points=1"),
        (lambda: analysis.place(analysis.plane(*(network(i) for i in range(3))), ONES), "model 1 differs"),
        (lambda: analysis.mixtures([ONES], [[0.5, 0.5]], bowl), "2 coefficient(s) for 1 model(s)"),
        (lambda: analysis.mixtures([ONES, {"v": jnp.ones(2)}], [[1, 0]], bowl), "differs"),
        (lambda: analysis.mixtures([ONES, {"w": jnp.array([1, np.inf])}], [[1, 0]], bowl), "model 1 is not"),
        (lambda: analysis.mixtures([ONES], [[1.0]], bowl, chunk=0), "chunk=0"),
        (lambda: analysis.mean_interval({0: 1.0}, confidence=95), "confidence=95"),
        (lambda: analysis.bootstrap_interval([[1.0], []]), "every task needs at least one value"),
    ],
)
def test_bad_input_is_one_line(call, words):
    check_refused(call, words)
