"""SCAFFOLD: control variates and their initial values."""

import jax
import numpy as np
import pytest

from tests import golden_problems as golden
from tests.algorithms.identities import META, problem, runs, same
from tests.algorithms.paths import gradient, recorded_rounds

pytestmark = pytest.mark.usefixtures("double")


@pytest.mark.parametrize("choice", ["scaffold", "scaffold:option=I", "scaffold:control_weighting=samples"])
def test_scaffolds_control_is_the_mean_of_all_clients_controls(choice):
    p = problem("partial")
    share = np.asarray(p.store.weight) if "samples" in choice else np.full(3, 1 / 3)
    for run in runs(choice):
        mean = jax.tree.map(lambda leaf: np.tensordot(share, np.asarray(leaf), 1), run.table)
        same(golden.vector(run.state), golden.vector(mean))


@pytest.mark.parametrize("variant", ["cyclic", "partial", "full"])
def test_scaffold_two_is_the_papers_formula_and_the_mean_gradient_along_the_path(variant):
    lr, steps = META["lr"], META["J"]
    row = lambda table, i: golden.vector(jax.tree.map(lambda leaf: leaf[i], table))
    for before, run, paths in recorded_rounds("scaffold", variant):
        for i, path in paths.items():
            moved = path[0] - path[-1]
            formula = row(before.table, i) - golden.vector(before.state) + moved / (steps[i] * lr)
            same(row(run.table, i), formula)
            same(formula, np.mean([gradient(i, path[j], j) for j in range(steps[i])], axis=0))
