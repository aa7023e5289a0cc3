"""Which strategy: the measured table, or a few timed rounds of each."""

import time
from collections.abc import Callable

import jax
import numpy as np

from fedwin import engine, multi_process
from fedwin.engine import sampling
from fedwin.engine.strategy import STRATEGIES, Strategy, default_name
from fedwin.errors import UserError
from fedwin.registry import nearest, parse
from fedwin.residence.client_table import distinct, places
from fedwin.residence.examples import examples_of
from fedwin.runs.config import Config
from fedwin.runs.prepare import PreparedRun
from fedwin.runs.resources import available, estimate

# Rounds that are timed.
ROUNDS = 2
# Words that stand for one of the strategies.
CHOSEN = ("default", "auto")


def check(name: str) -> None:
    """Raises UserError unless `name` is default, auto or a strategy that this machine can run."""
    if name in CHOSEN:
        return
    choice = parse(name)
    if choice.name in CHOSEN:
        raise UserError(f"strategy={name}: '{choice.name}' has no parameters; write --strategy={choice.name}.")
    if choice.name not in STRATEGIES:
        known = (*CHOSEN, *sorted(STRATEGIES))
        raise UserError(f"unknown strategy '{choice.name}'.{nearest(choice.name, known)} Known: {', '.join(known)}.")
    STRATEGIES.build(choice)


def resolve(name: str, clients_per_round: int | None = None) -> Strategy:
    """Returns the strategy that `name` means on this machine ('default' = the measured table)."""
    if name == "default":
        # A device without a client would only hold another copy of everything; but no process can be left out.
        devices = jax.device_count()
        if multi_process.count() == 1:
            devices = min(devices, clients_per_round or devices)
        name = default_name(jax.default_backend(), devices)
    strategy = STRATEGIES.build(name)
    if multi_process.count() > 1 and strategy.mesh is None:
        raise UserError(f"strategy={name} uses one device; {multi_process.count()} processes need --strategy=sharded.")
    return strategy


def planned(config: Config, known) -> Strategy:
    """Returns what `chosen` will, without timing; for 'auto' the strategy that needs the least memory."""
    if known is not None:
        return _resumed(config, known.identity.strategy)
    one_by_one = "chunked:k=1" if multi_process.count() == 1 else "sharded:k=1"
    return resolve(one_by_one if config.strategy == "auto" else config.strategy, config.clients_per_round)


def _resumed(config: Config, began: str) -> Strategy:
    """Returns the strategy that a run began with, or what --strategy means where its devices are not there."""
    try:
        return resolve(began, config.clients_per_round)
    except UserError:
        return resolve("default" if config.strategy == "auto" else config.strategy, config.clients_per_round)


def chosen(config: Config, prepared: PreparedRun, known, say: Callable[[str], None]) -> Strategy:
    """Returns the strategy of a run: the one that it began with, else that of --strategy.

    Args:
      config: the flags.
      prepared: the prepared run.
      known: the contents of config.json, None for a new run, and in processes that have no run directory.
      say: prints a line.
    """
    began = multi_process.said_by_first(None if known is None else known.identity.strategy)
    if began is not None:
        return _resumed(config, began)
    name = multi_process.said_by_first(fastest(prepared, say)) if config.strategy == "auto" else config.strategy
    return resolve(name, config.clients_per_round)


def candidates(clients: int, devices: int) -> list[str]:
    """Returns the strategies worth timing for cohorts of so many clients."""
    names = ["chunked:k=1", "vmapped"] + [f"chunked:k={k}" for k in (4, 16) if k < clients]
    if multi_process.count() > 1:
        names = []
    if devices > 1:
        names += [f"sharded:devices={devices},k=1", f"sharded:devices={devices},k=0"]
    return names


def fastest(prepared: PreparedRun, say: Callable[[str], None]) -> str:
    """Times a few rounds under every strategy that fits this machine and returns the name of the fastest."""
    seconds = {}
    room = available()
    names = candidates(prepared.config.clients_per_round, jax.device_count())
    for name in names:
        if name != names[0] and not estimate(prepared, STRATEGIES.build(name)).fits(room):
            say(f"strategy {name}: needs more memory than there is")
            continue
        seconds[name] = _seconds_per_round(prepared, STRATEGIES.build(name))
        say(f"strategy {name}: {seconds[name] * 1e3:.1f} ms per round")
    return min(seconds, key=lambda name: seconds[name])


def _seconds_per_round(prepared: PreparedRun, strategy: Strategy) -> float:
    clients, seed = prepared.config.clients_per_round, prepared.config.seeds[0]
    federation = prepared.federations[seed]
    dispatch = engine.Dispatch(prepared.algorithm, {}, strategy)
    ids = np.full((ROUNDS, strategy.multiple(clients)), -1, np.int32)
    ids[:, :clients] = sampling.cohorts(seed, 0, ROUNDS, federation.num_clients, clients)
    # A few rounds need no more of a large federation than their own clients.
    held = distinct(ids)
    run = prepared.start(seed, len(held), window_rounds=ROUNDS)._replace(observers={})
    run = strategy.place(run, strategy.placement(run))
    examples = examples_of(federation, prepared.config.examples, strategy, clients, ROUNDS)
    store, rows = examples.take(ids)
    cohorts = engine.Cohorts(ids, rows, places(ids, held, len(held)))
    took = 0.0
    for _ in range(2):  # the first call compiles
        begun = time.monotonic()
        run, _, _ = dispatch(run, store, cohorts, (), ROUNDS, np.zeros(ROUNDS, bool), n_max=federation.bucket(ids))
        jax.block_until_ready(run)
        took = (time.monotonic() - begun) / ROUNDS
    examples.close()
    return took
