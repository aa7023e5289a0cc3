"""Runs methods on the second golden problem in float64, and compares trajectories."""

import functools

import jax
import numpy as np

from fedwin import testing
from tests import golden_problems as golden

# Never FEDWIN_GOLDEN_DIR's: schedules and sizes below fit this problem.
META = golden.load("golden_wima_ghb.json", golden.HERE)["problem_B"]
T = 12
FULL = [[0, 1, 2]]

VARIANTS = {
    "partial": {},
    "equal": dict(epochs=3, batch_size=4),  # steps of all clients
    "one step full": dict(epochs=1, batch_size=4, schedule=FULL),
    "slow": dict(lr=0.4 * META["lr"]),
}


def problem(variant, **changes):
    return golden.problem_b(META, **VARIANTS[variant], **changes)


@functools.cache
def runs(choice, variant="partial", rounds=T):
    p = problem(variant)
    return testing.trajectory(p, p.build(choice), rounds)


def models(choice, variant="partial"):
    return np.stack([golden.vector(run.params) for run in runs(choice, variant)])


def same(a, b, tolerance=1e-11):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def differ(a, b, least=1e-3):
    assert np.abs(np.asarray(a) - np.asarray(b)).max() > least


def classifier_runs(choice, rounds=2, **kwargs):
    p = testing.classification(num_rounds=rounds, **kwargs)
    return p, testing.trajectory(p, p.build(choice), rounds)


def leaves(params):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
