"""Affine combinations of models."""

import jax.numpy as jnp
import pytest

from fedwin import analysis
from tests.analysis.common import ONES, check_refused


def test_mixing_keeps_counters_and_dtypes():
    mixed = lambda count, value: {"count": jnp.int32(count), "w": jnp.full(2, value, jnp.bfloat16)}
    out = analysis.mix([0.25, 0.75], [mixed(3, 1.0), mixed(5, 2.0)])
    assert int(out["count"]) == 3 and out["w"].dtype == jnp.bfloat16 and float(out["w"][0]) == 1.75


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: analysis.mix([1.0], [ONES, ONES]), "1 coefficient"),
        (lambda: analysis.mix([], []), "mix: coefficients"),
    ],
)
def test_bad_input_is_one_line(call, words):
    check_refused(call, words)
