"""Evaluation on the examples that clients hold out, those of all clients in one pool."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedwin.core import Variables
from fedwin.data.dataset import Dataset
from fedwin.data.federation import Federation
from fedwin.data.reader import ExampleSource
from fedwin.engine import evaluate
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.residence.examples import example_bytes

# What the names of its metrics begin with.
PREFIX = "val_"


def _count(federation: Federation) -> int:
    return 0 if federation.validation is None else len(federation.validation.order)


def check(federation: Federation, seed: int) -> None:
    """Checks that clients hold out examples, and no more than evaluation keeps on the device.

    Args:
      federation: the data set as it is dealt for a seed.
      seed: which one, for the error line.

    Raises:
      UserError: there are none, or too many.
    """
    if not _count(federation):
        raise UserError(
            f"eval_val: no client holds out an example with seed {seed}; raise --val_fraction or use fewer clients."
        )
    if pool_bytes({seed: federation}) > evaluate.TEST_BYTES:
        raise UserError(
            f"eval_val: {_count(federation):,} held-out examples with seed {seed} are more than the "
            f"{evaluate.TEST_BYTES >> 30} GiB kept for evaluation; lower --val_fraction."
        )


def pool_bytes(federations: dict[int, Federation]) -> int:
    """Returns the bytes of the held-out examples of the seed that has most."""
    return max(_count(federation) * example_bytes(federation) for federation in federations.values())


def pool(federations: dict[int, Federation], seed: int, batch_size: int, multiple: int = 1) -> dict[str, Any]:
    """Returns the held-out examples of all clients in batches [n, B, ...], of one shape for all seeds.

    Args:
      federations: seed -> the data set as it is dealt for that seed.
      seed: whose deal.
      batch_size: B at most.
      multiple: n becomes a multiple of it.
    """
    federation = federations[seed]
    assert federation.validation is not None
    with ExampleSource({name: federation.dataset.train[name] for name in ("x", "y")}) as source:
        examples = source.gather(np.sort(federation.validation.order))
    return evaluate.batches(examples, batch_size, multiple, room=max(map(_count, federations.values())))


def make_probe(model, normalise: Callable, dataset: Dataset, strategy: Strategy) -> Callable:
    """Returns (dict name -> Variables, (test batches, pool)) -> dict name -> {metric: scalar}, 'val_...' of the pool.

    Args:
      model: the network.
      normalise: batch -> batch, before the network sees it.
      dataset: what is measured; domains are not told apart in the pool.
      strategy: whose devices are used.
    """
    tested = evaluate.make_probe(model, normalise, evaluate.measure_of(dataset), strategy)
    pooled = evaluate.sequence(dataset.accuracies) if dataset.task == "sequence" else evaluate.classification()
    validated = evaluate.make_probe(model, normalise, pooled, strategy)

    def probe(models: dict[str, Variables], examples) -> dict[str, dict[str, Any]]:
        test, held_out = examples
        found, more = tested(models, test), validated(models, held_out)
        return {name: found[name] | {PREFIX + metric: v for metric, v in more[name].items()} for name in models}

    return probe
