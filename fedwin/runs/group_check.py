"""What does not go together with training several seeds at once (--seeds_at_once)."""

import jax

from fedwin import multi_process
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.residence.examples import should_stream
from fedwin.runs import groups
from fedwin.runs.build import Trial
from fedwin.runs.config import Config
from fedwin.runs.estimate import table_slots
from fedwin.runs.window_choice import window_plan


def check_processes(config: Config) -> None:
    """Raises UserError where several processes would have to train several seeds at once, or strategies be timed."""
    if groups.lanes_of(config) == 1:
        return
    if multi_process.count() > 1:
        raise _refused(config, f"works in one process, and there are {multi_process.count()}", "leave it out")
    if config.strategy == "auto":
        raise _refused(config, "does not go with strategy=auto, which times one seed", "name one: --strategy=vmapped")


def check(trial: Trial, strategy: Strategy) -> None:
    """Checks that the seeds of a run can train at once.

    Args:
      trial: what runs.
      strategy: how cohorts are mapped.

    Raises:
      UserError: they can't.
    """
    config, rounds = trial.config, trial.config.rounds_per_dispatch
    if groups.lanes_of(config) == 1:
        return
    if strategy.mesh is not None:
        raise _refused(config, f"needs one device, and strategy={strategy} has several", "set --strategy=vmapped")
    if should_stream(next(iter(trial.federations.values())), config.examples):
        raise _refused(config, "needs all examples on the device, where they don't go", "set --examples=device")
    places = {
        "table": ("clients' rows", table_slots(trial, strategy, rounds)[1]),
        "window": ("windows", window_plan(trial, rounds).kind),
    }
    for flag, (what, kind) in places.items():
        if kind != "device":
            raise _refused(config, f"needs {what} on the device, and they are in the {kind}", f"set --{flag}=device")
    shapes = {
        seed: jax.tree.map(lambda leaf: leaf.shape, found.shapes().info) for seed, found in trial.federations.items()
    }
    first = config.seeds[0]
    for seed, shape in shapes.items():
        if shape != shapes[first]:
            raise _refused(
                config,
                f"can't be: clients of the seeds {first} and {seed} differ in what they are told",
                "set --partition_seed",
            )


def _refused(config: Config, why: str, remedy: str) -> UserError:
    return UserError(f"seeds_at_once={config.seeds_at_once} {why}; {remedy}, or --seeds_at_once=1.")
