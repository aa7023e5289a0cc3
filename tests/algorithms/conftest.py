"""Fixture `equal`: compares golden values in float64 and float32."""

import jax
import numpy as np
import pytest


@pytest.fixture(params=["float64", pytest.param("float32", marks=pytest.mark.slow)])
def precision(request):
    with jax.enable_x64(request.param == "float64"), jax.default_matmul_precision("highest"):
        yield request.param


@pytest.fixture
def same(precision):
    """same(ours, theirs, **tolerance of float32 where 1e-5 is too strict)."""

    def close(ours, theirs, **float32):
        # The file rounds to 12 digits.
        tolerance = dict(rtol=1e-9, atol=1e-11) if precision == "float64" else dict(rtol=1e-5, atol=1e-6) | float32
        np.testing.assert_allclose(np.asarray(ours), theirs, **tolerance)

    return close
