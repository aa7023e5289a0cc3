"""Averages that are fed back: identities at both ends, and recursions in numpy."""

import functools

import jax
import numpy as np
import pytest

from fedwin import engine, observers, testing
from fedwin.engine.strategy import Strategy
from fedwin.wrappers import WRAPPERS
from tests import golden_problems as golden
from tests.algorithms.identities import problem, same
from tests.problems import built
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("double")
ROUNDS = 8


def trained(base, *texts, watch=(), variant="partial"):
    """Returns (algorithm, run after every round)."""
    p = problem(variant, num_rounds=ROUNDS)
    algorithm = built(p, base, *texts)
    watched = observers.build_all(watch, p.setting)
    runs = testing.trajectory(p, algorithm, ROUNDS, watched)
    return runs, [engine.read_out(algorithm, watched, run) for run in runs]


def vectors(models):
    return np.stack([golden.vector(model.params) for model in models])


@pytest.mark.parametrize("base", ["fedavg", "fedhbm", "mime"])
@pytest.mark.parametrize(
    "text", ["feedback:window=3,feedback=0", "ima:window=3,start=0,schedule=none,feedback=0"], ids=lambda t: t[:8]
)
def test_without_feedback_the_average_is_a_read_out_of_the_same_run(base, text):
    alone, seen = trained(base, watch=["wima:window=3"])
    runs, own = trained(base, text)
    np.testing.assert_array_equal(vectors(runs), vectors(alone))
    first = 2 if text.startswith("ima") else 0  # IMA waits until its window is full
    np.testing.assert_array_equal(
        vectors(out["model"] for out in own[first:]), vectors(out["wima3"] for out in seen[first:])
    )


def test_imas_server_steps_from_the_mix_that_it_broadcast():
    """One round from the mix is a round of the base method from there: a_{t+1} = FedAvg(y_t)."""
    f = 0.25
    runs, _ = trained("fedavg", f"ima:window=2,start=1,schedule=none,feedback={f}", variant="one step full")
    plain = fedavg_step()
    a = [plain(problem("one step full").variables.params)]
    y = a[0]
    for t in range(1, ROUNDS):
        a.append(plain(y))
        y = jax.tree.map(lambda new, mean: (1 - f) * new + f * mean, a[t], mean_of(a[-2:]))
        same(golden.vector(runs[t].params), golden.vector(y), 1e-12)


@functools.cache
def fedavg_step():
    """Returns params -> params after a round of FedAvg in which all clients take part."""
    p = problem("one step full")
    algorithm = p.build("fedavg")
    start, one = p.start(algorithm), functools.partial(engine.one_round, algorithm, {}, Strategy(1), p.n_max)
    return jax.jit(lambda params: one(start._replace(params=params), p.store, p.cohort(0))[0].params)


def mean_of(models):
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *models)


def exponential(z, memory=0.8):
    shares = [(1 - memory if k else 1) * memory ** (len(z) - 1 - k) for k in range(len(z))]
    return jax.tree.map(lambda *leaves: sum(share * x for share, x in zip(shares, leaves)), *z)


def linear_from_round_2(z):
    """Weights 1, 2, ... of z_3, z_4, ...; the newest model before."""
    late = z[3:] or z[-1:]
    return jax.tree.map(lambda *leaves: np.average(leaves, 0, np.arange(1.0, 1 + len(late))), *late)


# text -> f, and the average of z_0 .. z_k.
RECURSIONS = {
    "feedback:window=3,feedback=0.4": (0.4, lambda z: mean_of((z[1:] or z)[-3:])),
    "primal:mu_y=0.7,mu_x=0.8": (0.7, exponential),
    "schedule_free:beta=0.9": (0.9, lambda z: mean_of(z[1:] or z)),
    "schedule_free:beta=0.9,power=1,start=2": (0.9, linear_from_round_2),
}


@pytest.mark.parametrize("text", RECURSIONS, ids=lambda text: text.partition(":")[0])
def test_clients_train_from_the_mix_and_the_server_steps_from_its_own_model(text):
    feedback, average = RECURSIONS[text]
    runs, seen = trained("fedavg", text, variant="one step full")
    plain = fedavg_step()
    z = [problem("one step full").variables.params]
    for t in range(ROUNDS):
        y = jax.tree.map(lambda a, b: (1 - feedback) * a + feedback * b, z[-1], average(z))
        z.append(jax.tree.map(lambda a, new, old: a + new - old, z[-1], plain(y), y))
        same(golden.vector(runs[t].params), golden.vector(z[-1]), 1e-12)
        same(golden.vector(seen[t]["model"].params), golden.vector(average(z)), 1e-12)


def test_ima_with_feedback_refuses_to_mix_before_the_server():
    words = "feedback=0.5 mixes server models; with placement=pre, leave it out"
    refused(words, WRAPPERS.build, "ima:placement=pre,feedback=0.5", problem("partial").setting)
