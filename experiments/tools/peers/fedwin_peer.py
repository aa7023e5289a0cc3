"""Contestant: `fedwin.run`, evaluated on one example at the end of each turn."""

import tempfile
import time
from collections.abc import Iterator
from typing import Any

import cases
import jax
import numpy as np
import serve

import fedwin
from fedwin import jax_config
from fedwin.data import from_arrays

# Most rounds of a dispatch, as by default.
DISPATCH = 50


def dataset_of(case: cases.Case) -> fedwin.data.Dataset:
    """Returns the examples of a case as a data set with clients of its own."""
    x, y = cases.examples(case)
    clients = np.repeat(np.arange(case.total), [len(each) for each in y])
    test = x[0][:1], y[0][:1]
    return from_arrays(np.concatenate(x), np.concatenate(y), *test, num_classes=case.classes, clients=clients)


def train(config: dict[str, Any], dataset: fedwin.data.Dataset, rounds: int, turns: Iterator[int], answer) -> int:
    """Trains turns of `rounds` rounds until another number is requested; returns that number, 0 at the end.

    The first turn, which compiles, is not reported.

    Args:
      rounds: rounds of a turn.
      turns: rounds of the turns that follow.
    """
    started, following = 0.0, rounds

    def on_eval(completed, seed, read_outs):
        nonlocal started, following
        if completed > rounds and seed == config["seeds"][0]:  # of seeds at once, each has its call
            answer(seconds=time.perf_counter() - started, memory=serve.peak_memory())
            following = next(turns, 0)
        started = time.perf_counter()
        return fedwin.STOP if following != rounds else None

    with tempfile.TemporaryDirectory() as folder:
        fields = {"eval_every": rounds, "rounds_per_dispatch": min(rounds, DISPATCH), "out_dir": folder}
        fedwin.run(fedwin.Config(**config | fields), dataset=dataset, on_eval=on_eval, quiet=True)
    return following


def main() -> None:
    """Answers the timer's requests: fields case, config (fields of the Config)."""
    request, answer, turns = serve.connect()
    jax_config.use_every_core()
    fedwin.load_plugins(request["config"]["imports"])
    dataset = dataset_of(cases.case_of(request["case"]))
    answer(version=f"fedwin {fedwin.__version__}, jax {jax.__version__}, {jax.default_backend()}")
    rounds = next(turns, 0)
    while rounds:
        rounds = train(request["config"], dataset, rounds, turns, answer)


if __name__ == "__main__":
    main()
