"""FedAdam, FedYogi, FedAdagrad and FedOpt's adaptive servers."""

import jax
import numpy as np
import pytest

from fedwin import core, tree
from tests import golden_problems as golden
from tests.algorithms.identities import META, differ, models, problem, same

pytestmark = pytest.mark.usefixtures("double")


def test_fedyogi_begins_as_fedadam():
    same(models("fedyogi")[0], models("fedadam")[0])
    differ(models("fedyogi")[-1], models("fedadam")[-1], 1e-9)


def test_fedadagrads_first_step_is_a_sign():
    moved = models("fedadagrad")[0] - META["theta0"]
    same(np.abs(moved), 0.1, 1e-7)
    same(np.sign(moved), np.sign(models("fedavg")[0] - META["theta0"]))


@pytest.mark.parametrize("choice", ["fedadam", "fedyogi", "fedadagrad"])
def test_an_adaptive_server_without_messages_does_not_move(choice):
    p = problem("partial")
    algorithm = p.build(choice)
    params = p.variables.params
    nothing = {"delta": core.mean(tree.zeros_like(params), 1.0)}
    new, _ = algorithm.phases[0].server(params, algorithm.init(params, jax.random.key(0)), nothing, 0)
    assert (golden.vector(new) == META["theta0"]).all()
