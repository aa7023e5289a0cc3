"""Attacks: who attacks, what the server receives, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import aggregation, core, losses, testing
from fedwin.aggregation import AGGREGATORS, ATTACKS
from tests.problems import SIZES, STEPS, built, stepping
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("double")


def with_attackers(p, mask):
    return p._replace(store=p.store._replace(info=aggregation.with_attackers(p.store.info, np.asarray(mask))))


def one_round(algorithm, attack, mask, *wrappers, aggregate="mean", p=None, rounds=1):
    """The last run of some rounds in which the clients of a mask attack."""
    p = with_attackers(p or stepping(sizes=SIZES), mask)
    method = aggregation.attacked(built(p, algorithm, *wrappers), ATTACKS.build(attack, p.setting))
    method = aggregation.aggregated(method, AGGREGATORS.build(aggregate, p.setting))
    return testing.trajectory(p, method, rounds)[-1]


MASK = np.array([True, False, False, True, False])


def test_attackers_are_a_function_of_the_seed():
    drawn = lambda seed, count: np.flatnonzero(aggregation.attackers(seed, count, 20)).tolist()
    # A new release must draw the same ones.
    assert drawn(0, 4) == [1, 6, 8, 10] and drawn(1, 4) == [1, 7, 13, 14]
    assert set(drawn(0, 3)) < set(drawn(0, 4)) and len(drawn(0, 20)) == 20 and drawn(0, 0) == []


@pytest.mark.parametrize("clients, count", [("0.25", 3), ("1.0", 10), ("0", 0), ("1", 1)])
def test_attackers_are_a_fraction_or_a_number(clients, count):
    assert ATTACKS.build(f"sign_flip:clients={clients}", core.Setting(10, 2, 5)).count == count


def test_sign_flippers_send_the_opposite_of_their_steps():
    sent = np.where(MASK[:, None], -2.0, 1.0) * STEPS
    mean = one_round("fedavg", "sign_flip:clients=2,scale=2", MASK)
    np.testing.assert_allclose(mean.params["x"], SIZES @ sent / sum(SIZES), rtol=1e-12)
    middle = one_round("fedavg", "sign_flip:clients=2,scale=2", MASK, aggregate="median")
    np.testing.assert_allclose(middle.params["x"], np.median(sent, 0), rtol=1e-12)


def test_gaussian_attackers_keep_their_weights():
    mean = one_round("fedavg", "gaussian:clients=2,std=1e-12", MASK)
    np.testing.assert_allclose(mean.params["x"], SIZES @ np.where(MASK[:, None], 0.0, STEPS) / sum(SIZES), rtol=1e-9)


@pytest.mark.parametrize("attack", ["sign_flip", "gaussian"])
def test_parts_of_a_model_are_attacked_as_parts(attack):
    p = testing.classification()
    method = p.build("diloco:fragments=2")
    attacked = aggregation.attacked(method, ATTACKS.build(f"{attack}:clients=1", p.setting))
    p = with_attackers(p, np.arange(len(p.store.weight)) == 0)
    found, plain = (testing.trajectory(p, each, 1)[-1] for each in (attacked, method))
    assert any(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a != b).any()), found.params, plain.params)))


def test_attackers_evade_the_clients_bound_and_not_the_servers():
    run = lambda *args, **kwargs: one_round("fedavg", "sign_flip:scale=100", MASK, *args, **kwargs)
    assert np.linalg.norm(run("clip:norm=0.5").params["x"]) > 5
    assert np.linalg.norm(run(aggregate="norm_bound:norm=0.5").params["x"]) <= 0.5


@pytest.mark.slow
def test_gaussian_attackers_send_noise_that_is_paired_over_methods():
    """Standard deviation by statistics: 4000 numbers of one client, whose share of the cohort is a fifth."""
    p, mask = stepping(np.zeros((5, 4000))), np.arange(5) == 2
    first = one_round("fedavg", "gaussian:clients=1,std=3", mask, p=p).params["x"]
    np.testing.assert_allclose(np.std(5 * first), 3, rtol=0.05)
    np.testing.assert_allclose(np.mean(5 * first), 0, atol=0.2)
    other = one_round("scaffold", "gaussian:clients=1,std=6", mask, p=p).params["x"]
    np.testing.assert_allclose(other, 2 * first, rtol=1e-12)
    second = one_round("fedavg", "gaussian:clients=1,std=3", mask, p=p, rounds=2).params["x"]
    # The four others walk back to 0, which leaves a fifth of the first model; the attacker draws anew.
    assert abs(np.corrcoef(first, second - first / 5)[0, 1]) < 0.06


def flipped_problem(mask, **kwargs):
    """The classifier, and the same with flipped labels and counts where a mask is set."""
    p = testing.classification(**kwargs)
    p = p._replace(setting=p.setting._replace(model=p.setting.model._replace(num_classes=5)))  # the data have 3
    p.store.info["validation"] = np.roll(p.store.info["train"], 1)
    y, offset = np.asarray(p.store.examples["y"]).copy(), np.asarray(p.store.offset)
    info = jax.tree.map(lambda counts: np.where(mask[:, None], counts[:, ::-1], counts), p.store.info)
    for id in np.flatnonzero(mask):
        y[offset[id] : offset[id + 1]] = 2 - y[offset[id] : offset[id + 1]]
    return p, p._replace(store=p.store._replace(examples=p.store.examples | {"y": jnp.asarray(y)}, info=info))


@pytest.mark.parametrize(
    "algorithm, loss", [("fedavg", "wsm"), pytest.param("fedfa:lam=0.1", "cross_entropy", marks=pytest.mark.slow)]
)
def test_label_flippers_train_on_the_labels_of_flipped_data(algorithm, loss):
    mask = np.array([False, True, False, True])
    p, flipped = flipped_problem(mask, loss=losses.LOSSES[loss])
    attacked = one_round(algorithm, "label_flip:clients=2", mask, p=p, rounds=2)
    expected = testing.trajectory(flipped, flipped.build(algorithm), 2)[-1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14), attacked[:4], expected[:4])
    honest = one_round(algorithm, "none", mask, p=p, rounds=2)
    assert not np.allclose(jax.tree.leaves(honest.params)[0], jax.tree.leaves(attacked.params)[0])


@pytest.mark.parametrize(
    "choice, words",
    [
        ("sign_flip:clients=6", "sign_flip: clients=6, but the federation has 5"),
        ("sign_flip:clients=0.09", "clients=0.09, but the federation has 5; set a larger number"),
        ("label_flip", "label_flip: the model does not say how many classes there are"),
    ],
)
def test_what_an_attack_can_not_be_is_refused(choice, words):
    refused(words, ATTACKS.build, choice, core.Setting(5, 5, 5))
