"""The backdoor: what attackers train on, its success against numpy, and runs that report it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedwin
from fedwin import aggregation, core, losses, testing
from fedwin.aggregation import ATTACKS
from fedwin.aggregation.backdoor import Trigger
from fedwin.core import Variables
from fedwin.engine import evaluate
from fedwin.engine.strategy import Strategy
from fedwin.models.model import Model, Output
from tests.aggregation.test_robust_runs import SMALL
from tests.refusals import refused
from tests.small_runs import lines, placed

MASK = np.array([False, True, False, True])


def images():
    """The classifier of two numbers, stored as images of 1 x 2 pixels, with a loss that reads label counts."""
    p = testing.classification(loss=losses.LOSSES["wsm"])
    examples = p.store.examples | {"x": jnp.asarray(p.store.examples["x"]).reshape(-1, 1, 2, 1)}
    prepare = lambda batch, key: batch | {"x": batch["x"].reshape(-1, 2)}
    return p._replace(store=p.store._replace(examples=examples), solve=dataclasses.replace(p.solve, prepare=prepare))


def poisoned_by_hand(p, target):
    """The problem with every second example of the clients in MASK poisoned in the store."""
    x, y = (np.asarray(p.store.examples[name]).copy() for name in "xy")
    counts, offset = np.asarray(p.store.info["train"]).copy(), np.asarray(p.store.offset)
    for id in np.flatnonzero(MASK):
        for row in range(offset[id] + 1, offset[id + 1], 2):
            counts[id, y[row]] -= 1
            counts[id, target] += 1
            x[row, 0, 1, 0], y[row] = 1, target
    examples, info = p.store.examples | {"x": jnp.asarray(x), "y": jnp.asarray(y)}, p.store.info | {"train": counts}
    return p._replace(store=p.store._replace(examples=examples, info=info))


def trained(p, attack=None, rounds=2, run=None):
    method = p.build("fedavg")
    if attack:
        p = p._replace(store=p.store._replace(info=aggregation.with_attackers(p.store.info, MASK)))
        method = aggregation.attacked(method, ATTACKS.build(attack, p.setting))
    return testing.trajectory(p, method, rounds, run=run)[-1]


@pytest.mark.parametrize("changes, first, second", [("", 1, 1), (",start=1", 0, 1), (",stop=1", 1, 0)])
def test_attackers_train_on_poisoned_examples(changes, first, second, double):
    ours = trained(images(), "backdoor:clients=2,target=2,share=0.5,size=1" + changes)
    honest, poisoned = images(), poisoned_by_hand(images(), 2)
    theirs = trained(poisoned if second else honest, rounds=1, run=trained(poisoned if first else honest, rounds=1))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14), ours[:3], theirs[:3])
    assert np.abs(ours.params["last"]["bias"] - trained(images()).params["last"]["bias"]).max() > 1e-3


def test_boosts_and_rounds_of_an_attack():
    setting = images().setting
    setting = setting._replace(model=setting.model._replace(num_classes=5))  # the data have fewer classes
    attack = ATTACKS.build("backdoor:boost=2,start=3,stop=5", setting)
    boosted = attack.corrupt(core.mean_step({"x": np.ones(1, np.float32)}, 3), None)
    assert float(boosted.value["x"][0]) == 2 and attack.during == (3, 5)
    c = images().client(0)._replace(index=jnp.zeros(90_000, int), size=60_000)  # the last third is padding
    third = ATTACKS.build("backdoor:target=2,share=0.3333333333333333,size=1", setting).poison(c, True)
    assert int((third.info["train"] - c.info["train"])[2]) == 20_000


def test_no_share_and_no_attackers_are_no_attack():
    method = (p := images()).build("fedavg")
    for choice in ("backdoor:share=0,boost=5,size=1", "backdoor:clients=0"):
        attack = ATTACKS.build(choice, p.setting)
        assert aggregation.attacked(method, attack) is method and attack.trigger is not None


def test_success_is_that_of_other_classes_with_the_square():
    random = np.random.default_rng(0)
    x, y, w = random.integers(0, 256, (23, 3, 4, 2), np.uint8), random.integers(0, 3, 23), random.normal(size=(24, 3))
    output = lambda variables, batch, key, train: Output(batch["x"].reshape(-1, 24) @ variables.params, None, ())
    model = Model(lambda key: Variables(w), output, None, (), "linear", 3)
    halved = lambda batch: batch | {"x": batch["x"] / 255}
    probe = evaluate.make_probe(model, halved, evaluate.classification())
    probe = evaluate.joined([probe, evaluate.make_attack_probe(model, halved, Trigger(2, 1), Strategy())])
    test = evaluate.batches({"x": x, "y": y}, 5)
    found = jax.jit(probe)({"model": Variables(jnp.asarray(w)), "other": Variables(jnp.asarray(-w))}, test)
    stamped = x.copy()
    stamped[:, 1:, 2:] = 255
    for name, weights in (("model", w), ("other", -w)):
        success, right = (np.argmax(v.reshape(-1, 24) / 255 @ weights, 1) for v in (stamped, x))
        np.testing.assert_allclose(found[name]["attack_success"], (success == 1)[y != 1].mean(), rtol=1e-6)
        np.testing.assert_allclose(found[name]["accuracy"], (right == y).mean(), rtol=1e-6)


def test_a_run_reports_success_for_every_read_out(tmp_path):
    run = dataclasses.replace(SMALL, aggregate="norm_bound:norm=2", attack="backdoor:clients=3,boost=4", num_rounds=2)
    run = placed(run, tmp_path / "run", val_fraction=0.2, eval_val=True)
    table = repr(fedwin.run(run, quiet=True))
    for line in lines(tmp_path / "run"):
        assert all(0 <= line[name]["attack_success"] <= 1 and "val_loss" in line[name] for name in ("model", "wima3"))
    assert "attack success (%)" in table


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"attack": "backdoor:target=10"}, "backdoor: target=10 is not a class: there are 10; choose another one"),
        ({"attack": "backdoor:start=4,stop=4"}, "backdoor: stop=4 leaves no round after start=4"),
        ({"attack": "backdoor:start=9999"}, "backdoor: start=9999 is after the last of"),
        ({"attack": "backdoor:size=9"}, "backdoor: size=9 is more than images of 8 x 8 have"),
        ({"attack": "backdoor", "augment": "crop_flip:size=6"}, "backdoor: evaluation crops off the corner"),
        ({"attack": "backdoor", "dataset": "shakespeare_synthetic", "model": "shakespeare_lstm"}, "needs images"),
        ({"attack": "backdoor:boost=2", "algorithm": "fednova"}, "attack=backdoor: clients of this algorithm send no"),
    ],
)
def test_what_has_no_backdoor_is_refused(changes, words):
    config = dataclasses.replace(SMALL, partition="", num_clients=0) if "dataset" in changes else SMALL
    refused(words, fedwin.check, dataclasses.replace(config, **{"aggregate": "mean"} | changes))
