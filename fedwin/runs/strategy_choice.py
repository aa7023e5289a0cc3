"""Chooses the strategy of a run: by name, from the table of measured defaults, or by timing a few rounds of each."""

import contextlib
import dataclasses
import time
from collections.abc import Callable

import jax
import numpy as np

from fedwin import engine, multi_process
from fedwin.core import Cohort
from fedwin.engine.strategy import STRATEGIES, Strategy, default_name
from fedwin.errors import UserError
from fedwin.registry import nearest, parse
from fedwin.residence.examples import make_examples
from fedwin.residence.rows import DeviceTable, distinct_clients, slots_of
from fedwin.runs.machine import available
from fedwin.runs.plan import RunPlan, make_plan
from fedwin.runs.prepare import PreparedRun
from fedwin.runs.schedule import Schedule
from fedwin.runs.train import Driver, Parts

# Rounds that are timed.
ROUNDS = 2
# Names that stand for a choice among the strategies.
CHOICES = ("default", "auto")


def check_strategy(name: str) -> None:
    """Raises UserError unless `name` is default, auto or a strategy that this machine can run."""
    if name in CHOICES:
        return
    choice = parse(name)
    if choice.name in CHOICES:
        raise UserError(f"strategy={name}: '{choice.name}' has no parameters; write --strategy={choice.name}.")
    if choice.name not in STRATEGIES:
        names = (*CHOICES, *sorted(STRATEGIES))
        raise UserError(f"unknown strategy '{choice.name}'.{nearest(choice.name, names)} Known: {', '.join(names)}.")
    STRATEGIES.build(choice)


def resolve_strategy(name: str, clients_per_round: int | None = None) -> Strategy:
    """Returns a strategy on this machine.

    Args:
      name: a strategy, or 'default' for the table of measured defaults.
      clients_per_round: cohort size, which limits the number of devices; None: no limit.

    Raises:
      UserError: several processes, and a strategy for one device.
    """
    if name == "default":
        # More devices than clients would be idle; but every process must take part.
        devices = jax.device_count()
        if multi_process.count() == 1:
            devices = min(devices, clients_per_round or devices)
        name = default_name(jax.default_backend(), devices)
    strategy = STRATEGIES.build(name)
    if multi_process.count() > 1 and strategy.mesh is None:
        raise UserError(f"strategy={name} uses one device; {multi_process.count()} processes need --strategy=sharded.")
    return strategy


def planned(prepared: PreparedRun, previous: str | None) -> RunPlan:
    """Returns the plan of a run without timing; of 'auto' that which needs the least memory.

    Args:
      prepared: the prepared run.
      previous: strategy of the run that is resumed (its config.json), or None.
    """
    name, clients = prepared.config.strategy, prepared.setting.sampling.largest
    if previous is not None:
        try:
            return make_plan(prepared, resolve_strategy(previous, clients))
        except UserError:  # this machine lacks the devices
            name = "default" if name == "auto" else name
    if name == "auto":
        name = "chunked:k=1" if multi_process.count() == 1 else "sharded:k=1"
    return make_plan(prepared, resolve_strategy(name, clients))


def chosen(plan: RunPlan, previous: str | None, say: Callable[[str], None]) -> RunPlan:
    """Returns the plan of a run in all processes, with the fastest strategy for 'auto'.

    Args:
      plan: the result of `planned`.
      previous: strategy of the run that is resumed; None for a new run, and in processes that do not write.
      say: prints a line.
    """
    previous = multi_process.broadcast_object(previous)
    if previous is not None:
        return planned(plan.prepared, previous)
    if plan.prepared.config.strategy != "auto":
        return plan
    name = multi_process.broadcast_object(fastest(plan, say))
    return dataclasses.replace(plan, strategy=resolve_strategy(name, plan.prepared.setting.sampling.largest))


def candidates(clients: int, devices: int) -> list[str]:
    """Returns the strategies to time.

    Args:
      clients: cohort size.
      devices: number of devices.
    """
    names = ["chunked:k=1", "vmapped"] + [f"chunked:k={k}" for k in (4, 16) if k < clients]
    if multi_process.count() > 1:
        names = []
    if devices > 1:
        names += [f"sharded:devices={devices},k=1", f"sharded:devices={devices},k=0"]
    return names


def fastest(plan: RunPlan, say: Callable[[str], None]) -> str:
    """Times a few rounds under every strategy that fits this machine and returns the name of the fastest."""
    seconds: dict[str, float] = {}
    memory = available()
    for name in candidates(plan.prepared.setting.sampling.largest, jax.device_count()):
        candidate = dataclasses.replace(plan, strategy=STRATEGIES.build(name))
        if seconds and not candidate.requirements.fits(memory):
            say(f"strategy {name}: needs more memory than is available")
            continue
        seconds[name] = _seconds_per_round(candidate)
        say(f"strategy {name}: {seconds[name] * 1e3:.1f} ms per round")
    return min(seconds, key=lambda name: seconds[name])


class _CohortTable(DeviceTable):
    """The rows of a few clients on the device: timing does not need those of a large federation.

    Args:
      clients: their ids, ascending.
    """

    def __init__(self, clients: np.ndarray):
        super().__init__(len(clients))
        self.clients = clients

    def load(self, run, cohort: Cohort, rounds: int):
        """Returns the state as it is, and every client's row of its table."""
        return run, slots_of(cohort, self.clients, len(self.clients))


def _seconds_per_round(plan: RunPlan) -> float:
    prepared, strategy = plan.prepared, plan.strategy
    seed, largest = prepared.config.seeds[0], prepared.setting.sampling.largest
    schedule = Schedule(ROUNDS, largest, ROUNDS, 0, 0, ROUNDS)
    cohorts = prepared.cohorts(seed, schedule, strategy)
    table = _CohortTable(distinct_clients(cohorts.cohorts(0, ROUNDS)[0]))
    run = prepared.start(seed, table.slots, window_rounds=ROUNDS)._replace(observers={})
    run = strategy.place(run, strategy.placement(run))
    dispatch = engine.Dispatch(prepared.algorithm, {}, strategy)
    seconds = 0.0
    examples = make_examples(prepared.federations[seed], prepared.config.examples, strategy, largest, ROUNDS)
    with contextlib.closing(examples):
        driver = Driver(run, Parts(dispatch, (), examples, table, cohorts))
        del run
        for _ in range(2):  # the first dispatch compiles
            driver.load(0, ROUNDS, lambda completed: False)
            started = time.monotonic()
            driver.execute()
            jax.block_until_ready(driver.run)
            seconds = time.monotonic() - started
    return seconds / ROUNDS
