"""MIME against centralized gradient descent."""

import numpy as np
import pytest

from fedwin import testing
from tests.algorithms.identities import (
    FULL,
    T,
    same,
)

pytestmark = pytest.mark.usefixtures("double")


def test_mime_with_one_hessian_is_centralised_gradient_descent():
    centres, lr, steps = np.array([1.0, -1.0, 0.5]), 0.1, 3
    p = testing.quadratic([2.0] * 3, centres, [0.3], steps=steps, lr=lr, schedule=FULL)
    x = 0.3
    for run in testing.trajectory(p, p.build("mime"), T):
        for _ in range(steps):
            x = x - lr * 2 * (x - centres.mean())
        same(run.params["x"], [x])
