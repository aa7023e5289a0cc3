"""Limits in which methods coincide, settings in which they differ, and identities of single methods."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import testing, tree
from fedwin.algorithms.fedsam import perturbation
from tests import golden_problems as golden
from tests.algorithms.identities import FULL, T, differ, models, runs, same

pytestmark = pytest.mark.usefixtures("double")


# The setting that a registry entry names is compared in the contract suite; these are other ways to the same end.
@pytest.mark.parametrize(
    "choice",
    ["ghb:tau=50", "fedgma:threshold=0,mode=hard", "fedopt:optimizer=momentum,momentum=0", "fedadc:beta_global=0"],
)
def test_a_degenerate_setting_is_fedavg(choice):
    same(models(choice), models("fedavg"))


EQUAL = [
    # any mu, where clients take one step
    ("fedprox:mu=0.7", "fedavg", "one step"),
    ("fedacg:lam=0,beta=0.5", "fedprox:mu=0.5", "partial"),
    ("fedadc:beta_global=0.6", "ghb:tau=1,beta=0.6", "partial"),
    ("ghb:tau=1,beta=0.6", "fedavgm:beta=0.6", "one step"),
    ("adabest:mu=0,beta=0.8", "fedavgm:beta=0.8,nesterov=true", "partial"),
    ("adabest:mu=0,beta=0.8", "fedopt:optimizer=momentum,momentum=0.8,nesterov=true", "partial"),
    ("fedavgm:beta=0.9", "fedopt:optimizer=momentum", "partial"),
    ("scaffold:option=I", "scaffold:option=II", "one step"),
    ("scaffold", "fedavg", "one step equal full"),
    ("scaffold:control_weighting=samples", "fedavg", "one step full"),
    ("mime", "fedavg", "one step"),
    ("mime:beta=0.9", "mimelite:beta=0.9", "one step"),
    ("local_ghb:beta=0.9", "ghb:tau=1,beta=0.9", "full"),
    ("local_ghb:beta=0.9", "ghb:tau=3,beta=0.9", "cyclic"),
    ("local_ghb:beta=0.9", "local_ghb:beta=0.9,scale=tau_i", "cyclic"),
    ("fedhbm", "fedavg", "one step full"),
    ("fedhbm:first=shared", "fedhbm", "full"),
    ("local_ghb:beta=0.9,first=shared", "local_ghb:beta=0.9,first=shared,scale=tau_i", "cyclic"),
    ("fedhbm:first=random", "fedhbm:first=shared", "partial"),  # the initializer returns x^0 here
    ("fednova", "fedavg", "equal"),
    ("fednova:mu=0.3", "fedprox:mu=0.3", "equal"),
    ("fednova:tau_eff=steps", "fednova", "partial"),
    ("fedstale:beta=1", "fedvarp", "partial"),
    ("fedvarp", "fedavg", "full"),
    # -lr g_i is then the step, and the shift by c - c_i, which is constant, the remembered ones
    ("fedvarp:weighting=uniform", "scaffold:weighting=uniform", "one step"),
    ("fedavg_m:beta=0.4", "fedcm:alpha=0.4", "equal"),
    ("fedgloss:rho=0,local_rho=0,beta=2.5", "feddyn:alpha=0.4", "partial"),
    ("mofedsam:beta=0.4,rho=0", "fedcm:alpha=0.4", "partial"),
    ("mofedsam:beta=1", "fedsam", "partial"),
    ("fedsmoo:rho=0,beta=2.5", "feddyn:alpha=0.4", "partial"),
    ("amplified_scaffold:period=1,gamma=0.7", "scaffold:server_lr=0.7", "partial"),
    pytest.param("scaffold_m:beta=1", "scaffold", "partial", marks=pytest.mark.slow),
    pytest.param("scaffold_m:beta=0.4", "fedavg_m:beta=0.4", "one step equal full", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("one,other,variant", EQUAL)
def test_equal(one, other, variant):
    same(models(one, variant), models(other, variant))


DIFFERENT = [
    ("fedadc:beta_global=0.6,beta_local=1", "ghb:tau=1,beta=0.6", "partial"),
    ("scaffold", "fedavg", "one step full"),
    ("feddyn:alpha=1e-12", "fedavg", "partial"),
    ("fedhbm", "fedavg", "full"),
    ("fedhbm:first=shared", "fedhbm", "partial"),
    ("fednova", "fedavg", "partial"),
    ("fedavg:weighting=uniform", "fedavg", "partial"),
    ("fedvarp", "fedavg", "partial"),
    ("fedavg_m:beta=0.4", "fedcm:alpha=0.4", "partial"),
    ("fedgloss:rho=0,local_rho=0,beta=2.5,dual=cohort", "feddyn:alpha=0.4", "partial"),
]


@pytest.mark.parametrize("one,other,variant", DIFFERENT)
def test_different(one, other, variant):
    differ(models(one, variant), models(other, variant))


def test_fedcm_is_ghb_with_a_smaller_client_rate():
    same(models("fedcm:alpha=0.4,server_lr=0.5"), models("ghb:tau=1,beta=1.2,server_lr=0.5", "slow"))


def test_fedacg_is_adabest_seen_from_its_average():
    averages = np.stack([golden.vector(run.state.average) for run in runs("adabest:mu=0,beta=0.8")])
    same(models("fedacg:lam=0.8,beta=0"), averages)
    ahead = [golden.vector(tree.axpy(0.8, run.state, run.params)) for run in runs("fedacg:lam=0.8,beta=0")]
    same(np.stack(ahead), models("adabest:mu=0,beta=0.8"))


def test_momentum_off_the_server_rate_is_scaled_by_it():
    # GHB's recursion needs eta = 1; FedACG's m is the actual displacement for every eta.
    first, last = runs("fedacg:lam=0.5,server_lr=0.5", rounds=2)
    same(golden.vector(tree.sub(last.params, first.params)), golden.vector(last.state))


def test_adabest_without_memory_loss_is_feddyn_at_full_participation():
    same(models("adabest:mu=0,beta=1", "equal full"), models("feddyn:alpha=1e-13", "equal full"), 1e-8)


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


def test_sams_perturbation_has_norm_rho_and_asam_without_weights_is_sam():
    g = {"bias": jnp.array([3.0, -4.0])}
    same(tree.norm(perturbation(g, g, 0.3)), 0.3)
    same(perturbation(g, g, 0.3, 0.2)["bias"], perturbation(g, g, 0.3)["bias"])
    b = jnp.array([[3.0, -4.0]])  # of LoRA
    same(perturbation({"b": b}, {"b": b}, 0.3, 0.2)["b"], perturbation({"w": b}, {"w": b}, 0.3, 0.2)["w"])
    w = {"scale": jnp.array([3.0, -4.0])}
    differ(perturbation(w, w, 0.3, 0.2)["scale"], perturbation(w, w, 0.3)["scale"])
