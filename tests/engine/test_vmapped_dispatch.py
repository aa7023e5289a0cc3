"""Rounds of several vmapped seeds in one program; its numbers are compared in tests/runs/test_seeds.py."""

import jax
import numpy as np

from fedwin import engine, observers
from fedwin.engine.strategy import Strategy
from fedwin.runs.seeds import broadcast_state
from fedwin.testing import federations, problems


def test_the_rings_are_written_in_place():
    fed, rounds, seeds = federations.federation(equal=False), 4, range(3)
    algorithm = federations.build("scaffold", fed)
    seen = {"wima": observers.wima((observers.ReadOut("wima", 7),))}
    run, store = federations.start(algorithm, seen, fed)
    run = broadcast_state(run, len(seeds))
    plans = [federations.cohorts(fed, rounds, seed=seed) for seed in seeds]
    cohorts = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *plans)
    options = federations.probe(), problems.compile_options()
    dispatch = engine.VmappedDispatch(algorithm, seen, Strategy(), *options, partitions_differ=False)
    test, flags = engine.evaluate.batches(fed.dataset.test, 16, 1), np.array([0, 1, 0, 1], bool)
    text = dispatch.compiled(run, store, cohorts, test, rounds, flags, int(fed.sizes.max())).as_text()
    ring = "f32[{},{},{}]".format(*run.observers["wima"].ring.shape)
    lines = [line for line in text.splitlines() if ring in line]
    assert [line for line in lines if "dynamic-update-slice" in line]
    assert not [line for line in lines if " copy(" in line or " scatter(" in line]
