"""Limits in which methods coincide, settings in which they differ, and identities of single methods."""

import numpy as np
import pytest

from fedwin import testing
from tests.algorithms.identities import FULL, T, differ, models, same

pytestmark = pytest.mark.usefixtures("double")


# The setting that a registry entry names is compared in the contract suite; these are other ways to the same end.
@pytest.mark.parametrize(
    "choice",
    ["ghb:tau=50", "fedgma:threshold=0,mode=hard", "fedopt:optimizer=momentum,momentum=0", "fedadc:beta_global=0"],
)
def test_a_degenerate_setting_is_fedavg(choice):
    same(models(choice), models("fedavg"))


EQUAL = [
    ("fedacg:lam=0,beta=0.5", "fedprox:mu=0.5", "partial"),
    ("ghb:tau=1,beta=0.6", "fedavgm:beta=0.6", "one step"),
    ("adabest:mu=0,beta=0.8", "fedavgm:beta=0.8,nesterov=true", "partial"),
    ("fedavgm:beta=0.9", "fedopt:optimizer=momentum", "partial"),
    ("scaffold:option=I", "scaffold:option=II", "one step"),
    ("scaffold", "fedavg", "one step equal full"),
    ("scaffold:control_weighting=samples", "fedavg", "one step full"),
    ("mime", "fedavg", "one step"),
    ("mime:beta=0.9", "mimelite:beta=0.9", "one step"),
    ("local_ghb:beta=0.9", "ghb:tau=3,beta=0.9", "cyclic"),
    ("local_ghb:beta=0.9", "local_ghb:beta=0.9,scale=tau_i", "cyclic"),
    ("fedhbm", "fedavg", "one step full"),
    ("fedhbm:first=shared", "fedhbm", "full"),
    ("fedhbm:first=random", "fedhbm:first=shared", "partial"),  # the initializer returns x^0 here
    ("fednova", "fedavg", "equal"),
    ("fednova:mu=0.3", "fedprox:mu=0.3", "equal"),
    ("fednova:tau_eff=steps", "fednova", "partial"),
    ("fedvarp", "fedavg", "full"),
]


@pytest.mark.parametrize("one,other,variant", EQUAL)
def test_equal(one, other, variant):
    same(models(one, variant), models(other, variant))


DIFFERENT = [
    ("fedadc:beta_global=0.6,beta_local=1", "ghb:tau=1,beta=0.6", "partial"),
    ("feddyn:alpha=1e-12", "fedavg", "partial"),
    ("fedhbm", "fedavg", "full"),
    ("fedhbm:first=shared", "fedhbm", "partial"),
    ("fednova", "fedavg", "partial"),
    ("fedavg:weighting=uniform", "fedavg", "partial"),
]


@pytest.mark.parametrize("one,other,variant", DIFFERENT)
def test_different(one, other, variant):
    differ(models(one, variant), models(other, variant))


def test_fedcm_is_ghb_with_a_smaller_client_rate():
    same(models("fedcm:alpha=0.4"), models("ghb:tau=1,beta=0.6", "slow"))


@pytest.mark.parametrize("one,other", [("scaffold", "fedavg"), ("fedyogi", "fedadam")])
def test_the_first_round_is_equal_and_the_last_is_not(one, other):
    same(models(one)[0], models(other)[0])
    differ(models(one)[-1], models(other)[-1], 1e-9)


def test_mime_with_one_hessian_is_centralized_gradient_descent():
    centers, lr, steps = np.array([1.0, -1.0, 0.5]), 0.1, 3
    p = testing.quadratic([2.0] * 3, centers, [0.3], steps=steps, lr=lr, schedule=FULL)
    x = 0.3
    for run in testing.trajectory(p, p.build("mime"), T):
        for _ in range(steps):
            x = x - lr * 2 * (x - centers.mean())
        same(run.params["x"], [x])
