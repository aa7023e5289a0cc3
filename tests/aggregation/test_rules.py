"""Aggregators: rules that combine the clients' steps, against numpy; through the engine on every strategy; refusals."""

import functools

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from fedwin import core, engine, testing
from fedwin.aggregation import AGGREGATORS, aggregated
from fedwin.algorithms import ALGORITHMS
from fedwin.engine.strategy import Strategy, make_mesh
from tests.problems import SIZES, STEPS, stepping
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("double")


def setting(cohort):
    return core.Setting(100, cohort, 10)


@functools.cache
def program(choice):
    """The rule for ten places, compiled once."""
    return jax.jit(AGGREGATORS.build(choice, setting(10)).combine, compiler_options=testing.compile_options())


def median(steps, weights):
    return np.median(steps, 0)


def krum(f, m):
    def rule(steps, weights):
        to_others = np.sort(cdist(steps, steps, "sqeuclidean"), 1)[:, 1:]
        scores = to_others[:, : max(len(steps) - f - 2, 1)].sum(1)
        return steps[np.argsort(scores, kind="stable")[:m]].mean(0)

    return rule


def geometric(steps, weights):
    v = np.zeros(steps.shape[1])
    for _ in range(10):
        b = weights / np.maximum(1e-6, np.linalg.norm(steps - v, axis=1))
        v = (b[:, None] * steps).sum(0) / b.sum()
    return v


def bounded(steps, weights):
    cut = [step * min(1, 1.5 / np.linalg.norm(step)) for step in steps]
    return np.average(cut, axis=0, weights=weights)


RULES = {
    "median": median,
    "trimmed_mean:share=0.25": lambda steps, weights: stats.trim_mean(steps, 0.25),
    "krum:f=1": krum(1, 1),
    "krum:f=1,m=3": krum(1, 3),
    "geometric_median": geometric,
    "norm_bound:norm=1.5": bounded,
    "krum:f=0,m=4": krum(0, 4),
}


@pytest.mark.parametrize("choice", RULES)
def test_rules_are_those_of_numpy_for_any_number_of_clients_that_are_present(choice):
    """Of ten places, n at random are taken; one program serves them all."""
    generator = np.random.default_rng(7)
    for n in range(1, 11):
        steps = np.zeros((10, 6))
        places = np.sort(generator.choice(10, n, replace=False))
        own, weights = generator.normal(size=(n, 6)), generator.integers(1, 9, n).astype(float)
        own[0] *= 50  # an outlier
        steps[places], present, all_weights = own, np.isin(np.arange(10), places), np.zeros(10)
        all_weights[places] = weights
        found = program(choice)(steps, all_weights, present)
        np.testing.assert_allclose(found, RULES[choice](own, weights), rtol=1e-9, atol=1e-12, err_msg=str(n))


def test_a_share_is_a_decimal_number():
    steps, rule = np.arange(100.0)[:, None] ** 2, AGGREGATORS.build("trimmed_mean:share=0.29", setting(100))
    found = rule.combine(steps, np.ones(100), np.ones(100, bool))  # 0.29 * 100 is less than 29
    np.testing.assert_allclose(found, steps[29:71].mean(0), rtol=1e-12)


# With f=0 a rule counts on no attackers.
@pytest.mark.parametrize("choice", [choice for choice in RULES if "f=0" not in choice])
def test_one_client_with_numbers_that_are_not_numbers_does_no_harm(choice):
    present = np.arange(10) < 7
    steps = np.random.default_rng(3).normal(size=(10, 6)) * present[:, None]
    honest = np.abs(steps).max()
    for bad in (np.nan, np.inf, -np.inf, 1e200):
        steps[2] = bad
        assert np.abs(program(choice)(steps, 1.0 * present, present)).max() <= honest


# Through the engine.


def build(algorithm, aggregate):
    """A builder (setting, solve) of an algorithm whose server combines steps with a rule."""

    def builder(setting, solve):
        return aggregated(ALGORITHMS.build(algorithm, setting, solve), AGGREGATORS.build(aggregate, setting))

    return builder


@pytest.mark.parametrize("strategy", [Strategy(None), Strategy(2), Strategy(1, make_mesh(2))], ids=str)
def test_the_server_steps_by_the_median_on_every_strategy(strategy):
    steps = np.where(np.arange(5)[:, None] == 3, np.inf, STEPS)  # of which one is not finite
    p = stepping(steps, sizes=SIZES)
    method = p.build(build("fedavg:server_lr=0.5", "median"))
    ids, one = np.array([-1, *range(5)], np.int32), functools.partial(engine.one_round, method, {}, strategy, p.n_max)
    step = jax.jit(one, compiler_options=testing.compile_options())
    run, metrics = step(strategy.place(p.start(method)), strategy.place(p.store), core.Cohort.of(ids, ids >= 0))
    np.testing.assert_allclose(run.params["x"], 0.5 * median(steps, SIZES), rtol=1e-12)
    assert np.isfinite(metrics["loss"].value)


def test_nobody_moves_nothing():
    """A server that steps without clients."""
    p = stepping(schedule=((-1, -1),))
    run = testing.trajectory(p, p.build(build("amplified_scaffold:period=2", "median")), 1)[-1]
    np.testing.assert_array_equal(run.params["x"], np.zeros(3))


COHORTS = ((0, 1, 2, 3, 4), (2, 0, 1, 3, 4))
KINDS = [
    # Controls, two phases, rows, windows; statistics come with the classifier.
    ("scaffold", "median"),
    ("mime:beta=0.5", "trimmed_mean:share=0.2"),
    ("fedhbm", "krum:f=1,m=2"),
    ("fedadam", "geometric_median"),
]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm, choice", KINDS)
def test_strategies_agree_and_a_loop_is_its_rounds(algorithm, choice):
    """Vmapped, in chunks and sharded, with padding, to rounding; and resuming, to the bit."""
    p = testing.classification((4, 2, 3, 5, 3), schedule=COHORTS, shuffle=False)
    bench = testing.Bench(build(algorithm, choice), p, rounds=3)
    testing.check_loop(bench)
    testing.check_padding(bench)
    for strategy in (Strategy(None), Strategy(2), Strategy(1, make_mesh(2))):
        testing.check_strategy(bench, strategy)


@pytest.mark.parametrize(
    "choice, words",
    [
        ("krum:f=2", "krum: f=2 needs cohorts of at least 2 f [+] 3 = 7 clients, and 5 are drawn; raise"),
        ("krum:f=1,m=5", "krum: m=5 must be at most n - f = 4"),
        ("trimmed_mean:share=0.1", "share=0.1 of 5 clients that are drawn removes none; set share to at least 0.2"),
    ],
)
def test_what_a_rule_can_not_do_is_refused(choice, words):
    refused(words, AGGREGATORS.build, choice, setting(5))
    refused("set --clients_per_round to at least 10", AGGREGATORS.build, "trimmed_mean:share=0.1", setting(2))


@pytest.mark.parametrize(
    "algorithm, words",
    [
        ("feddyn:alpha=0.1", "aggregate=median: the server of this algorithm also uses a sum that is computed"),
        ("fednova", "aggregate=median: clients of this algorithm send no mean step"),
    ],
)
def test_messages_that_a_rule_does_not_cover_are_refused(algorithm, words):
    p = stepping()
    refused(words, testing.trajectory, p, p.build(build(algorithm, "median")), 1)
    twice = lambda setting, solve: aggregated(
        build("fedavg", "median")(setting, solve), AGGREGATORS.build("median", setting)
    )
    refused("aggregates messages itself", p.build, twice)
