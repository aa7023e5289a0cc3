"""The loss on a line: key g12 of golden_ima_wsm.json, and identities."""

import jax.numpy as jnp
import numpy as np

from fedwin import analysis
from tests.analysis.common import DATA, array, bitwise, bowl, network


def test_golden_g12_line(same):
    g = DATA["g12_landscape"]
    first, second, _ = ({"w": array(w)} for w in g["w"])
    s, loss = analysis.line(first, second, bowl, g["line_alphas"])
    same(s, g["line_alphas"])
    same(loss, g["line_loss"])


def test_a_line_ends_at_its_models():
    first, second, seen = network(0), network(1), []
    s, values = analysis.line(first, second, lambda m: seen.append(m) or {"loss": m.params["bias"].sum(), "error": 0.5})
    assert len(s) == 41 and s[0] == -0.5 and s[-1] == 1.5
    assert values["loss"].shape == values["error"].shape == (41,)
    (zero,), (one,) = np.flatnonzero(s == 0), np.flatnonzero(s == 1)
    bitwise(seen[zero], first)
    bitwise(seen[one], second)
    # Statistics move with the parameters, and dtypes stay.
    half = seen[int(np.flatnonzero(s == 0.5)[0])]
    np.testing.assert_allclose(half.stats["mean"], (first.stats["mean"] + second.stats["mean"]) / 2, rtol=1e-6)
    assert half.params["kernel"].dtype == jnp.float32
