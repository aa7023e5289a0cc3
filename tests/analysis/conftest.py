"""Fixture `equal`: comparison with the golden file in both precisions."""

import jax
import numpy as np
import pytest


@pytest.fixture(params=["float64", "float32"])
def same(request):
    """Compares with the file, jax in the precision of that name."""
    # The file rounds to 12 digits.
    tolerance = dict(rtol=1e-9, atol=1e-11) if request.param == "float64" else dict(rtol=1e-5, atol=1e-6)
    with jax.enable_x64(request.param == "float64"):
        yield lambda ours, theirs: np.testing.assert_allclose(np.asarray(ours), theirs, **tolerance)
