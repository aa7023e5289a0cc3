"""Which strategy: the measured table, or a few timed rounds of each."""

import time

import jax
import numpy as np

from fedwin import engine
from fedwin.engine import sampling
from fedwin.engine import strategy as strategies
from fedwin.residence.stream import Stream, should_stream
from fedwin.runs.build import Trial


def check(name: str) -> None:
    """Raises UserError unless `name` is default, auto or a strategy that this machine can run."""
    if name not in ("default", "auto"):
        strategies.STRATEGIES.build(name)


def resolve(name: str, clients_per_round: int | None = None) -> strategies.Strategy:
    """Returns the strategy that `name` means on this machine ('default' = the measured table)."""
    if name == "default":
        # A device without a client would only hold another copy of everything.
        devices = min(jax.local_device_count(), clients_per_round or jax.local_device_count())
        name = strategies.default_name(jax.default_backend(), devices)
    return strategies.STRATEGIES.build(name)


def fastest(trial: Trial, say) -> str:
    """Times a few rounds under every strategy that fits this machine and returns the name of the fastest."""
    clients, devices = trial.config.clients_per_round, jax.local_device_count()
    names = ["chunked:k=1", "vmapped"] + [f"chunked:k={k}" for k in (4, 16) if k < clients]
    if devices > 1:
        names += [f"sharded:devices={devices},k=1", f"sharded:devices={devices},k=0"]
    seed = trial.config.seed_list[0]
    federation, algorithm = trial.federations[seed], trial.algorithm(seed)
    streamed = should_stream(federation, trial.config.examples)
    seconds = {}
    for name in names:
        strategy = strategies.STRATEGIES.build(name)
        dispatch = engine.make_rounds(algorithm, {}, strategy)
        width = strategy.multiple(clients)
        ids = np.full((2, width), -1, np.int32)
        ids[:, :clients] = sampling.cohorts(seed, 0, 2, federation.num_clients, clients)
        # Two rounds need no more of a large federation than their own clients.
        unique = np.unique(ids[ids >= 0])
        slots = np.where(ids >= 0, np.searchsorted(unique, np.maximum(ids, 0)), len(unique)).astype(np.int32)
        run = trial.start(seed, len(unique), algorithm)._replace(observers={})
        run = strategy.place(run, strategy.placement(run))
        if streamed:
            stream = Stream(federation, width, 2, strategy.place)
            store, rows = stream.take(ids)
            stream.close()
        else:
            store, rows = strategy.place(federation.store()), np.maximum(ids, 0)
        cohorts = engine.Cohorts(ids, rows, slots)
        for _ in range(2):  # the first call compiles
            begun = time.monotonic()
            run, _, _ = dispatch(run, store, cohorts, (), 2, np.zeros(2, bool), n_max=federation.bucket(ids))
            jax.block_until_ready(run)
            seconds[name] = (time.monotonic() - begun) / 2
        say(f"strategy {name}: {seconds[name] * 1e3:.1f} ms per round")
    return min(seconds, key=seconds.get)
