"""Rounds of several vmapped seeds in one program."""

import functools

import jax
import numpy as np

from fedwin import engine, observers
from fedwin.engine.strategy import Strategy
from fedwin.runs.seeds import broadcast_state, seed_state, set_seed_state
from fedwin.testing import federations, problems

ROUNDS, WINDOW = 4, 7
FED = federations.federation(equal=False)
N_MAX = int(FED.sizes.max())


def watching():
    return {"wima": observers.wima((observers.ReadOut("wima", WINDOW),))}


def state(algorithm, seen, seed):
    return federations.start(algorithm, seen, FED, seed=seed)[0]


def stacked(runs):
    several = broadcast_state(runs[0], len(runs))
    for index, run in enumerate(runs):
        several = set_seed_state(several, run, index)
    return several


def inputs(algorithm, seen, seeds):
    """Returns the states, the store, the cohorts and the flags of these seeds."""
    plans = [federations.cohorts(FED, ROUNDS, seed=seed) for seed in seeds]
    cohorts = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *plans)
    store = federations.start(algorithm, seen, FED)[1]
    return stacked([state(algorithm, seen, seed) for seed in seeds]), store, cohorts, np.array([0, 1, 0, 1], bool)


@functools.cache
def program(seen):
    """Returns (algorithm, observers, dispatch) of a program of seeds whose clients hold the same examples."""
    algorithm = federations.build("scaffold", FED)
    return algorithm, seen(), engine.VmappedDispatch(*arguments(algorithm, seen()), partitions_differ=False)


def arguments(algorithm, seen):
    return algorithm, seen, Strategy(), federations.probe(), problems.compile_options()


def go(seeds, seen=watching):
    algorithm, watched, dispatch = program(seen)
    run, store, cohorts, flags = inputs(algorithm, watched, seeds)
    return dispatch(run, store, cohorts, federations.evaluation_set(FED), ROUNDS, flags, n_max=N_MAX)


def test_a_vmapped_seed_computes_what_it_would_alone():
    algorithm, seen, dispatch = program(watching)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    together = go((0, 1, 2))
    again = go((2, 1, 0))
    alone = engine.Dispatch(*arguments(algorithm, seen))
    test, flags = federations.evaluation_set(FED), np.array([0, 1, 0, 1], bool)
    for index, seed in enumerate((0, 1, 2)):
        run, store = federations.start(algorithm, seen, FED, seed=seed)
        found = alone(run, store, federations.cohorts(FED, ROUNDS, seed=seed), test, ROUNDS, flags, n_max=N_MAX)
        own = (seed_state(together[0], index), *jax.tree.map(lambda leaf, k=index: leaf[:, k], together[1:]))
        jax.tree.map(close, (own[0]._replace(key=()), *own[1:]), (found[0]._replace(key=()), *found[1:]))
    # The bits do not depend on the other seeds.
    jax.tree.map(np.testing.assert_array_equal, *(seed_state(each[0], 1).params for each in (together, again)))
    assert dispatch.traces == [N_MAX]


def test_the_rings_are_written_in_place():
    algorithm, seen, dispatch = program(watching)
    run, store, cohorts, flags = inputs(algorithm, seen, (0, 1, 2))
    test = federations.evaluation_set(FED)
    text = dispatch.compiled(run, store, cohorts, test, ROUNDS, flags, N_MAX).as_text()
    ring = "f32[{},{},{}]".format(*run.observers["wima"].ring.shape)
    lines = [line for line in text.splitlines() if ring in line]
    assert [line for line in lines if "dynamic-update-slice" in line]
    assert not [line for line in lines if " copy(" in line or " scatter(" in line]
