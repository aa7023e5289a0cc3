"""Lowering of the loop over rounds for GPU and TPU, on a machine that has neither; the compiled local step of a CPU."""

import re

import jax
import numpy as np
import pytest
from jax import export

from fedwin import engine, observers
from fedwin.engine.strategy import STRATEGIES, Strategy
from fedwin.runs.seeds import broadcast_state
from fedwin.testing import federations, problems


@pytest.mark.parametrize("platform, name", [("tpu", "chunked:k=1"), ("cuda", "sharded:devices=2,k=0")])
def test_lowers(platform, name):
    strategy = STRATEGIES.build(name)
    fed = federations.federation(equal=False)
    algorithm = federations.build("fedhbm", fed)
    watching = {"wima": observers.wima((observers.ReadOut("wima3", 3),))}
    rounds = engine.Dispatch(algorithm, watching, strategy, federations.probe(strategy)).rounds
    run, store = federations.start(algorithm, watching, fed, strategy)
    test = engine.evaluate.batches(fed.dataset.test, 16, strategy.num_devices)
    plan = federations.cohorts(fed, 3, width=strategy.multiple(4))
    lowered = jax.jit(lambda *args: rounds(*args, n_max=20), donate_argnums=0)
    exported = export.export(lowered, platforms=[platform])(run, store, plan, test, 3, np.ones(3, bool))
    assert exported.platforms == (platform,)
    program = exported.mlir_module()
    # The whole state is updated in place, and nothing waits for the host.
    assert len(re.findall(r"tf.aliasing_output|jax.buffer_donor", program)) == len(jax.tree.leaves(run))
    assert not re.search(r"callback|custom_call|infeed|outfeed|f64", program)
    exchanges = len(re.findall(r"all_reduce|all_gather|all_to_all|collective", program))
    assert (exchanges > 0) == (strategy.mesh is not None)


def instructions_of_a_step(program: str) -> list[str]:
    """Returns the instructions that XLA runs one by one in the loop that has most of the gradients."""
    bodies = dict(re.findall(r"^%?([\w.-]+) \(.*\{\n((?:  .*\n)+)\}", program, re.MULTILINE))
    body = max(re.findall(r"body=%?([\w.-]+)", program), key=lambda name: bodies[name].count("jvp"))
    free = re.compile(r" (parameter|constant|get-tuple-element|tuple|bitcast)\(")
    return [line.strip() for line in bodies[body].splitlines() if not free.search(line)]


# Of jaxlib 0.10.2: most are the network's, seven copies of the loop's state, counts and the sum of losses.
@pytest.mark.parametrize("choice, most", [("fedavg", 31), ("scaffold", 35)])
def test_a_local_step_has_few_instructions(choice, most):
    # The time of a round of small models follows their number (jax issue 40150).
    fed = federations.federation(equal=False)
    algorithm = federations.build(choice, fed)
    run, store = federations.start(algorithm, {}, fed)
    arguments = (run, store, federations.cohorts(fed, 3), (), 3, np.zeros(3, bool))
    compiled = engine.Dispatch(algorithm, {}, STRATEGIES.build("chunked:k=1")).compiled(*arguments, n_max=20)
    found = instructions_of_a_step(compiled.as_text())
    assert len(found) <= most, "\n".join(found)


def test_the_rings_of_vmapped_seeds_are_written_in_place():
    """Their numbers are compared in tests/runs/test_seeds.py."""
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
