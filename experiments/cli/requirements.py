"""--dry_run: prints the requirements of a run (memory, disk, rounds, hours) without training or writing anything."""

import dataclasses
import pathlib
from collections.abc import Mapping

from absl import flags

from fedwin.errors import UserError
from fedwin.runs.checkpoint import seed_checkpoints
from fedwin.runs.config import Config
from fedwin.runs.run import DryRun, measure_requirements
from fedwin.runs.start import fork_round

_MINUTE, _HOUR = 60, 3600
_MB = 1e6
# Fields that do not change the requirements.
_RATES = ("client_lr", "lr_decay", "out_dir")


def duration(seconds: float) -> str:
    """Returns a time in seconds, minutes or hours.

    >>> duration(0.2), duration(200), duration(20_000)
    ('0.2 s', '3.3 minutes', '5.6 hours')
    """
    if seconds < 2 * _MINUTE:
        return f"{seconds:.1f} s"
    return f"{seconds / _MINUTE:.1f} minutes" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} hours"


def completed(config: Config, directory) -> list[int]:
    """Returns the completed rounds of each seed: those of its newest checkpoint."""
    completed_rounds = []
    for seed in config.seeds:
        try:
            rounds = seed_checkpoints(directory, seed).rounds()
        except OSError as error:
            raise UserError(f"{directory}/checkpoints can't be read ({error.strerror}).") from error
        completed_rounds.append(rounds[-1] if rounds else fork_round(config))
    return completed_rounds


def define(groups: dict[str, list[str]], flag_values: flags.FlagValues) -> None:
    """Defines --dry_run among the flags that say how a run is computed.

    Args:
      groups: title -> names of flags, which is changed.
    """
    text = "Time a few rounds, print the requirements (memory, disk, rounds, hours), and stop; nothing is written."
    flags.DEFINE_bool("dry_run", False, text, flag_values=flag_values)
    groups["execution"].append("dry_run")


def requested(flag_values: flags.FlagValues = flags.FLAGS) -> bool:
    """Whether --dry_run is given."""
    return bool(flag_values["dry_run"].value)


def memory_line(required: DryRun) -> str:
    """Returns the memory of a run by part, its sum, and the available memory."""
    free = required.available.host if required.available.device is None else required.available.device
    note = "" if free is None else f"; {free / _MB:,.0f} MB are available"
    return f"{required.requirements}; total {sum(required.requirements.parts.values()) / _MB:,.0f} MB{note}"


def disk_line(required: DryRun) -> str:
    """Returns the files of a run by part, and the free disk space."""
    parts = ", ".join(f"{name} {size / _MB:,.1f} MB" for name, size in required.requirements.disk.items())
    return f"disk: {parts}; {required.free_disk / _MB:,.0f} MB are free"


def show(config: Config) -> float:
    """Prints the requirements of a run; returns its expected seconds.

    Raises:
      UserError: anything that `fedwin.run` would reject, or too little memory or disk.
    """
    required = measure_requirements(config, say=print)
    seconds = required.timing.expected(
        required.checked.plan.prepared.schedule, completed(config, required.checked.directory)
    )
    print("\n".join(_lines(required, seconds)), flush=True)
    return seconds


def _lines(required: DryRun, seconds: float) -> list[str]:
    plan, directory, timing = required.checked.plan, required.checked.directory, required.timing
    config, schedule = plan.prepared.config, plan.prepared.schedule
    done = completed(config, directory)
    seeds = f"{'seed' if len(done) == 1 else 'each of the seeds'} {','.join(map(str, config.seeds))}"
    finished = f"; done: {','.join(map(str, done))}" if any(done) else ""
    return [
        f"{directory}: {config.algorithm} on {config.dataset}, {config.model}",
        f"plan: {plan}",
        memory_line(required),
        disk_line(required),
        f"rounds: {config.num_rounds:,} and {schedule.evaluations(0):,} evaluations for {seeds}{finished}",
        f"pace: {timing.seconds_per_round:.3g} s a round, {timing.seconds_per_evaluation:.3g} s an evaluation, "
        f"{timing.compile_seconds:.1f} s to compile",
        f"expected: {duration(seconds)}, without checkpoints; nothing was written",
    ]


def _decisive_fields(config: Config) -> tuple:
    """Returns the fields that determine the requirements; of runs that agree in them only one is timed."""
    names = (field.name for field in dataclasses.fields(Config) if field.name not in _RATES)
    return tuple(repr(getattr(config, name)) for name in names)


def show_all(configs: Mapping[str, Config]) -> None:
    """Prints the requirements of several runs, and their total time.

    Raises:
      UserError: some would be rejected, or do not fit this machine; the requirements of the others are printed first.
    """
    total, refused = 0.0, []
    timed: dict[tuple, tuple[str, float]] = {}
    for number, (label, config) in enumerate(configs.items()):
        print(f"[{number + 1}/{len(configs)}] {label}", flush=True)
        key = (_decisive_fields(config), *completed(config, pathlib.Path(config.out_dir)))
        try:
            if key in timed:
                print(f"as {timed[key][0]}")
            else:
                timed[key] = (label, show(config))
            total += timed[key][1]
        except UserError as error:
            print(error)
            refused.append(label)
    print(f"in all: {duration(total)}")
    if refused:
        raise UserError(f"{len(refused)} of {len(configs)} runs would be refused, the first is '{refused[0]}'.")
