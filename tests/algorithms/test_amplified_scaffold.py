"""Amplified SCAFFOLD against plain numpy, as SCAFFOLD with periods of one round, and its rounds without clients."""

import numpy as np
import pytest

from fedwin import sampling, testing
from fedwin.wrappers import build_all
from tests.algorithms import numpy_clients as plain

ROUNDS = 8


def expected(period, gamma, weighting, server_lr):
    """Models, c and all c_i after each round; c_i are set for all clients when a period ends."""
    x, c, controls, out = plain.START, np.zeros(2), np.zeros((3, 2)), []
    start, sums, counts = x, np.zeros((3, 2)), np.zeros(3)
    p = plain.SIZES if weighting == "samples" else np.ones(3)
    for t in range(ROUNDS):
        cohort, ys = plain.SCHEDULE[t % len(plain.SCHEDULE)], {}
        for i in cohort:
            y = x
            for batch in plain.batches(i):
                g = plain.gradient(y, batch)
                sums[i] += g
                counts[i] += 1
                y = y - plain.LR * (g - controls[i] + c)
            ys[i] = y
        x = x + server_lr * sum(p[i] * (ys[i] - x) for i in cohort) / sum(p[i] for i in cohort)
        used = controls
        if (t + 1) % period == 0:
            x = start + gamma * (x - start)
            controls = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], controls)
            start, c, sums, counts = x, controls.mean(0), np.zeros((3, 2)), np.zeros(3)
        out.append((x, c, used))
    return [np.stack(part) for part in zip(*out)]


@pytest.mark.parametrize(
    "period,gamma,weighting,server_lr",
    [(3, 1.3, "uniform", 0.8), pytest.param(1, 0.9, "samples", 1.0, marks=pytest.mark.slow)],
)
def test_amplified_scaffold_is_the_papers_rule(period, gamma, weighting, server_lr, double):
    p = plain.problem()
    choice = f"amplified_scaffold:period={period},gamma={gamma},weighting={weighting},server_lr={server_lr}"
    runs = testing.trajectory(p, p.build(choice), ROUNDS)
    x, c, controls = expected(period, gamma, weighting, server_lr)
    np.testing.assert_allclose([plain.vector(run.params) for run in runs], x, rtol=1e-9)
    np.testing.assert_allclose([plain.vector(run.state.control) for run in runs], c, rtol=1e-9, atol=1e-12)
    for t, run in enumerate(runs):
        for i in plain.SCHEDULE[t % len(plain.SCHEDULE)]:
            np.testing.assert_allclose(plain.row(run.table.control, i), controls[t, i], rtol=1e-9, atol=1e-12)


def test_the_default_period_is_a_cycle_of_groups():
    sampler = sampling.make_sampler("cyclic", sampling.Population(5, 3, 4, (0,), None))  # groups of 2 and 3 clients
    p = testing.quadratic([1.0] * 5, range(5), [9.0], steps=1, lr=0.1, schedule=((0, 1), (2, 3, 4)))
    p = p._replace(setting=p.setting._replace(sampling=sampler))
    default, two = (testing.trajectory(p, p.build(f"amplified_scaffold{more}"), 3) for more in ("", ":period=2"))
    assert default[-1].params == two[-1].params


def test_a_period_starts_from_the_model_that_a_wrapper_made(double):
    p = plain.problem()
    averaged = p.build(
        "amplified_scaffold:period=2,gamma=2", *build_all(["ima:window=3,start=2,schedule=none"], p.setting)
    )
    runs = testing.trajectory(p, averaged, 6)
    for before, run in zip(runs[1::2], runs[2::2]):
        np.testing.assert_array_equal(plain.vector(run.state.inner.start), plain.vector(before.params))


def test_a_period_ends_in_a_round_without_clients(double):
    p = plain.problem()
    algorithm = p.build("amplified_scaffold:period=2,gamma=2")
    assert algorithm.steps_without_clients
    run = testing.trajectory(p, algorithm, 1)[-1]
    nobody = testing.trajectory(p._replace(schedule=((0, 1), ())), algorithm, 2)[-1]
    np.testing.assert_allclose(plain.vector(nobody.params), 2 * plain.vector(run.params) - plain.START, rtol=1e-12)
    np.testing.assert_array_equal(plain.vector(nobody.state.control), plain.vector(run.state.next_control))
