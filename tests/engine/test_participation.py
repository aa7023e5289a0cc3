"""Empty cohorts and factors of aggregation weights in one round."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, engine, observers, testing
from fedwin.engine.strategy import Strategy, make_mesh
from fedwin.testing.problems import compile_options

SCHEDULE = ((0, 1, 2), (3, 1, 0))


@functools.cache
def bench(choice):
    """A problem and an algorithm: quadratics for what is quick, a network with statistics for the others."""
    if choice == "scaffold":
        p = testing.quadratic(
            [1.0, 2.0, 0.5, 1.5], [0.0, 1.0, -1.0, 2.0], 0.3, steps=2, lr=0.1, schedule=SCHEDULE, sizes=[4, 2, 3, 5]
        )
    else:
        p = testing.classification((4, 2, 3, 5), schedule=SCHEDULE, shuffle=False)
    return p, p.build(choice)


@functools.cache
def watcher():
    return {"ema": observers.OBSERVERS.build("ema:decay=0.5", bench("fedavg")[0].setting)}


@functools.cache
def program(choice, strategy, seen):
    p, algorithm = bench(choice)
    step = functools.partial(engine.one_round, algorithm, watcher() if seen else {}, strategy, p.n_max)
    return jax.jit(step, compiler_options=compile_options())


def one_round(choice, run, ids, strategy=Strategy(1), seen=False, **extras):
    ids = np.asarray(ids, np.int32)
    return program(choice, strategy, seen)(run, bench(choice)[0].store, core.Cohort.of(ids, ids >= 0, **extras))


def close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6), a, b)


def test_an_empty_cohort_leaves_everything_but_the_observers():
    p, algorithm = bench("scaffold")
    go = functools.partial(one_round, "scaffold", seen=True)
    run, _ = go(p.start(algorithm, watcher()), SCHEDULE[0], size=np.int32(3))
    after, metrics = go(run, [-1, -1, -1], size=np.int32(0))
    for part in ("params", "stats", "state", "table"):
        jax.tree.map(np.testing.assert_array_equal, getattr(after, part), getattr(run, part))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(getattr(after, part)))
    assert int(after.round) == 2 and float(metrics["loss"].weight) == 0
    watched = algorithm.eval_model(core.Variables(run.params, run.stats), run.state)
    close(after.observers["ema"], watcher()["ema"].update(1, watched, run.observers["ema"]))
    # The next round goes on from there, and one with clients is that of a program without the guard.
    full, _ = go(after, SCHEDULE[1], size=np.int32(3))
    assert any((np.asarray(x) != np.asarray(y)).any() for x, y in zip(*map(jax.tree.leaves, (full.params, run.params))))
    close(full._replace(key=()), go(after, SCHEDULE[1])[0]._replace(key=()))


def test_a_server_that_steps_without_clients_keeps_the_statistics():
    choice = "amplified_scaffold:period=2,gamma=2"
    p, algorithm = bench(choice)
    start = p.start(algorithm)
    run, _ = one_round(choice, start, SCHEDULE[0], size=np.int32(3))
    after, _ = one_round(choice, run, [-1, -1, -1], size=np.int32(0))
    jax.tree.map(np.testing.assert_array_equal, (after.stats, after.table), (run.stats, run.table))
    jax.tree.map(np.testing.assert_array_equal, after.state.control, run.state.next_control)
    close(after.params, jax.tree.map(lambda x, y: 2 * y - x, start.params, run.params))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after.params, after.stats, after.state)))


def test_a_client_that_does_not_answer_keeps_its_row():
    p, algorithm = bench("scaffold")
    start = p.start(algorithm, watcher())
    run, _ = one_round("scaffold", start, [0, -1, 2], seen=True, size=np.int32(2))
    without, _ = one_round("scaffold", start, [0, 2, -1], seen=True)
    jax.tree.map(lambda after, before: np.testing.assert_array_equal(after[1], before[1]), run.table, start.table)
    close(run._replace(key=()), without._replace(key=()))


ACROSS = Strategy(None, make_mesh() if jax.device_count() > 1 else None)


@pytest.mark.parametrize("strategy", [Strategy(1), pytest.param(ACROSS, marks=pytest.mark.slow)])
def test_factors_multiply_the_weights_of_the_mean(strategy):
    choice = "fedavg:weighting=samples"
    p, algorithm = bench(choice)
    ids, factors = (0, 2, 3, 1), np.array([0.5, 3.0, 1.25, 2.0])
    start = p.start(algorithm)
    # A cohort of one client steps to the client's own model, whatever its factor.
    alone = lambda id: one_round(choice, start, [id, -1, -1, -1], strategy, importance=jnp.asarray(factors))[0]
    own = [alone(id) for id in ids]
    run, _ = one_round(choice, start, ids, strategy, importance=jnp.asarray(factors))
    sizes = np.array([4, 2, 3, 5])[list(ids)]
    weights = sizes * factors / (sizes * factors).sum()
    for part in ("params", "stats"):
        expected = jax.tree.map(
            lambda *leaves: sum(w * np.asarray(x) for w, x in zip(weights, leaves)),
            *(getattr(each, part) for each in own),
        )
        close(getattr(run, part), expected)


def test_programs_without_samplers_have_neither_guard_nor_factors():
    p, algorithm = bench("scaffold")
    run = p.start(algorithm)

    def primitives(**extras):
        step = functools.partial(engine.one_round, algorithm, {}, Strategy(1), p.n_max)
        return str(jax.make_jaxpr(lambda run: step(run, p.store, core.Cohort.of(range(3), **extras))[0])(run))

    assert " cond[" not in primitives() and " cond[" in primitives(size=jnp.int32(3))
