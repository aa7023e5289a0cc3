"""Fine-tuning of parts of a network with a running statistic, and the registry of personalizers."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from fedwin import personalization, testing, tree
from fedwin.personalization import PERSONALIZERS, Personalizer
from tests.refusals import refused


@pytest.fixture(scope="module")
def problem():
    """(setting, solver, model, client) of a small network with a running statistic, weight decay and Adam."""
    p = testing.classification(epochs=1, lr=0.1, optimizer=optax.adam(1.0), weight_decay=0.1)
    return p.setting, p.solve, p.variables, p.client(0)


@pytest.mark.parametrize("part", ["all", "classifier", "features"])
def test_the_rest_of_the_model_stays_as_it_is(problem, part):
    setting, solve, model, client = problem
    own = PERSONALIZERS.build(f"finetune:part={part},epochs=2", setting, solve).adapt(model, client)
    changed = {
        "features": bool((own.params["hidden"]["kernel"] != model.params["hidden"]["kernel"]).any()),
        "classifier": bool((own.params["last"]["kernel"] != model.params["last"]["kernel"]).any()),
    }
    assert changed == {name: part in ("all", name) for name in ("features", "classifier")}
    assert bool((own.stats["mean"] != model.stats["mean"]).any()) == (part != "classifier")
    # One step, as long as the bound: the norm is that of the part.
    clipped = dataclasses.replace(solve, optimizer=optax.sgd(1.0), weight_decay=0.0, clip_norm=0.05, batch_size=8)
    own = PERSONALIZERS.build(f"finetune:part={part}", setting, clipped).adapt(model, client)
    assert float(tree.norm(tree.sub(own.params, model.params))) == pytest.approx(0.1 * 0.05, rel=1e-5)


def test_all_of_the_model_is_the_runs_own_local_training(problem):
    setting, solve, model, client = problem
    own = PERSONALIZERS.build("finetune", setting, solve).adapt(model, client)
    trained = solve(model.params, client._replace(stats=model.stats))
    turns = dataclasses.replace(solve, frozen=lambda step: jax.tree.map(lambda leaf: True, step.params))  # FedRep's
    alike = PERSONALIZERS.build("finetune", setting, turns).adapt(model, client)
    jax.tree.map(np.testing.assert_array_equal, alike.params, own.params)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), own.params, trained.params)))


def test_builders_and_names_are_checked(problem):
    setting, solve, _, _ = problem
    headless = setting._replace(model=setting.model._replace(classifier_path=()))
    adapt = PERSONALIZERS.build("finetune:part=classifier", headless, solve).adapt
    refused("finetune, part=classifier: the model has no parameters below", adapt, *problem[2:])
    PERSONALIZERS.register("named_client", lambda setting, solve: Personalizer("client", None))
    refused("'client' can't be its name", personalization.build_all, ["named_client"], setting, solve)
