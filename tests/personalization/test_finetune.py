"""Fine-tuning of parts of a network with BatchNorm, and the registry of personalizers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedwin import core, local, losses, models, personalization
from fedwin.data.federation import make_store
from fedwin.personalization import PERSONALIZERS, Personalizer
from tests.refusals import refused

CLASSES = 3


def network():
    """A network of one normalized layer and a classifier."""

    def init(key):
        params = {"body": {"scale": jnp.ones(4)}, "last": {"w": jnp.ones((4, CLASSES)) * 0.1}}
        return core.Variables(params, {"mean": jnp.zeros(4)})

    def apply(variables, batch, key, train):
        mean = jnp.mean(batch["x"], 0) if train else variables.stats["mean"]
        features = (batch["x"] - mean) * variables.params["body"]["scale"]
        stats = {"mean": 0.9 * variables.stats["mean"] + 0.1 * mean} if train else variables.stats
        return models.model.Output(features @ variables.params["last"]["w"], features, stats)

    return models.Model(init, apply, None, ("last",), "probe", CLASSES)


@pytest.fixture(scope="module")
def problem():
    """(setting, solver, model, client) of a small network with BatchNorm, weight decay and Adam."""
    model = network()
    setting = core.Setting(1, 1, 1, lambda key: model.init(key).params, model)
    solve = local.Solver(
        losses.LOSSES.build("cross_entropy", model), 0.1, 2, optimizer=optax.adam(1.0), weight_decay=0.1
    )
    draw = np.random.default_rng(0)
    examples = {"x": draw.normal(size=(6, 4)).astype(np.float32), "y": np.arange(6, dtype=np.int32) % CLASSES}
    store, place = jax.tree.map(jnp.asarray, (make_store(examples, [6]), core.Cohort.of(0)))
    client = store.client(place, key=jax.random.key(0), round=place.ids, state=(), stats=(), n_max=6)
    return setting, solve, model.init(jax.random.key(1)), client


@pytest.mark.parametrize("part", ["all", "classifier", "features"])
def test_the_rest_of_the_model_stays_as_it_is(problem, part):
    setting, solve, model, client = problem
    own = PERSONALIZERS.build(f"finetune:part={part},epochs=2", setting, solve).adapt(model, client)
    changed = {
        "features": bool((own.params["body"]["scale"] != model.params["body"]["scale"]).any()),
        "classifier": bool((own.params["last"]["w"] != model.params["last"]["w"]).any()),
    }
    assert changed == {name: part in ("all", name) for name in ("features", "classifier")}
    assert bool((own.stats["mean"] != model.stats["mean"]).any()) == (part != "classifier")


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
