"""Bad input of all analyses is one line."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import analysis, testing
from tests.analysis.common import ONES, bowl, network
from tests.refusals import refused

MODEL, SQUARE = testing.classification().setting.model, np.zeros((1, 2, 2))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: analysis.recomputed(MODEL, network(0), []), "no batch"),
        (lambda: analysis.recomputed(MODEL._replace(apply=lambda own, *_: own), network(0), [{"x": [0]}]), "counters"),
        (lambda: analysis.factors(SQUARE, np.zeros(2), [0, 2]), "0..1"),
        (lambda: analysis.factors(SQUARE[:, :1], np.zeros(2), [0, 0]), "two clients are needed"),
        (lambda: analysis.client_losses(SQUARE, [0, 1], "hinge"), "'hinge'"),
        (lambda: analysis.label_distances([[1, 2], [0, 0]]), "no example"),
        (lambda: analysis.gini([0, 0]), "all are 0"),
        (lambda: analysis.forgetting([0.1, 0.2], [[0.1, 0.2]]), "(1, 2)"),
        (lambda: analysis.linear_cka(np.ones((3, 2)), np.ones((4, 2))), "3 and 4 examples"),
        (lambda: analysis.rounds_to_target([0.1, 0.2], np.nan), "target=nan"),
        (lambda: analysis.rounds_to_target([0.1, 0.2], 0.1, [2, 2]), "one increasing round for each"),
        (lambda: analysis.plane(ONES, {"w": jnp.ones(3)}, ONES), "model 1 differs"),
        (lambda: analysis.mix([1.0], [ONES, ONES]), "1 coefficient"),
        (lambda: analysis.plane(ONES, ONES, {"w": jnp.array([1.0, 2.0])}), "first two models are equal"),
        (lambda: analysis.grid(analysis.plane(*(network(i) for i in range(3))), margin=-1.0), "margin=-1.0"),
        (lambda: analysis.mixtures([ONES], [[0.5, 0.5]], bowl), "2 coefficient(s) for 1 model(s)"),
        (lambda: analysis.mixtures([ONES], [[1.0]], bowl, chunk=0), "chunk=0"),
        (lambda: analysis.paired_interval({0: 1.0}, [1.0]), "seed -> number, not a list"),
        (lambda: analysis.pooled_gains([[0.0, 1.0], [1.0, 0.0]]), "seed -> number, not a list"),
        (lambda: analysis.p_value({0: 1.0, 1: None}), "two seeds or more"),
        (lambda: analysis.rejected([0.01], "bonferroni"), "method=bonferroni must be one of"),
    ],
)
def test_bad_input_is_one_line(call, words):
    refused([words], call)
