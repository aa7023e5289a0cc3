"""FedSAM and FedASAM: sharpness-aware perturbations."""

import jax.numpy as jnp
import pytest

from fedwin import tree
from fedwin.algorithms.fedsam import perturbation
from tests.algorithms.identities import (
    differ,
    same,
)

pytestmark = pytest.mark.usefixtures("double")


def test_sams_perturbation_has_norm_rho_and_asam_without_weights_is_sam():
    g = {"bias": jnp.array([3.0, -4.0])}
    same(tree.norm(perturbation(g, g, 0.3)), 0.3)
    same(perturbation(g, g, 0.3, 0.2)["bias"], perturbation(g, g, 0.3)["bias"])
    w = {"scale": jnp.array([3.0, -4.0])}
    differ(perturbation(w, w, 0.3, 0.2)["scale"], perturbation(w, w, 0.3)["scale"])
