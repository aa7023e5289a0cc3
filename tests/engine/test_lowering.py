"""The loop over rounds lowers for GPU and TPU on a machine that has neither."""

import jax
import numpy as np
import pytest
from jax import export

from fedwin import engine, observers
from fedwin.engine.strategy import STRATEGIES
from tests import toy


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
@pytest.mark.parametrize("name", ["vmapped", "chunked:k=1", "sharded:devices=2,k=0"])
def test_lowers(platform, name):
    strategy = STRATEGIES.build(name)
    fed = toy.federation(equal=False)
    algorithm = toy.build("fedhbm", fed)
    watching = {"wima": observers.wima((observers.Reading("wima3", 3),))}
    rounds = engine.make_rounds(algorithm, watching, strategy, toy.probe(strategy)).rounds
    run, store = toy.start(algorithm, watching, fed, strategy)
    test = toy.tests(fed, strategy)
    plan = toy.cohorts(fed, 3, width=strategy.multiple(4))
    lowered = jax.jit(lambda *args: rounds(*args, n_max=20), donate_argnums=0)
    exported = export.export(lowered, platforms=[platform])(run, store, plan, test, 3, np.ones(3, bool))
    assert exported.platforms == (platform,) and exported.mlir_module_serialized
