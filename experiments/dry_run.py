"""What a run would need: memory, disk, rounds, pace, hours. Nothing is trained to an end, and nothing is written.

`--dry_run` of every binary that trains is defined here and ends here.
"""

import dataclasses
import pathlib
from collections.abc import Mapping

from absl import flags

from fedwin.errors import UserError
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.config import Config
from fedwin.runs.dry_run import Needs, needs
from fedwin.runs.warm_start import fork_round

_MINUTE, _HOUR = 60, 3600
_MB = 1e6
# Fields that change numbers and nothing else.
_RATES = ("client_lr", "lr_decay", "out_dir")


def duration(seconds: float) -> str:
    """Returns a time in words of a fitting size.

    >>> duration(0.2), duration(200), duration(20_000)
    ('0.2 s', '3.3 minutes', '5.6 hours')
    """
    if seconds < 2 * _MINUTE:
        return f"{seconds:.1f} s"
    return f"{seconds / _MINUTE:.1f} minutes" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} hours"


def completed(config: Config, directory) -> list[int]:
    """Returns how many rounds of each seed are done: those of its newest checkpoint."""
    found = []
    for seed in config.seeds:
        try:
            rounds = Checkpoints(directory / "checkpoints" / f"seed_{seed}").rounds()
        except OSError as error:
            raise UserError(f"{directory}/checkpoints can't be read ({error.strerror}).") from error
        found.append(rounds[-1] if rounds else fork_round(config))
    return found


def define(groups: dict[str, list[str]], known: flags.FlagValues) -> None:
    """Defines --dry_run among the flags that say how a run is computed.

    Args:
      groups: title -> names of flags, changed.
      known: where flags are defined.
    """
    told = "Time a few rounds, print what is needed (memory, disk, rounds, hours), and stop; nothing is written."
    flags.DEFINE_bool("dry_run", False, told, flag_values=known)
    groups["running"].append("dry_run")


def asked_for(known: flags.FlagValues = flags.FLAGS) -> bool:
    """Whether --dry_run is given."""
    return bool(known["dry_run"].value)


def memory_line(found: Needs) -> str:
    """Returns the parts of the memory that a run takes, their sum, and what there is."""
    there = found.available.host if found.available.device is None else found.available.device
    told = "" if there is None else f"; {there / _MB:,.0f} MB are available"
    parts, _, _ = str(found.memory).partition("; disk: ")  # which has a line of its own
    return f"{parts}; together {sum(found.memory.parts.values()) / _MB:,.0f} MB{told}"


def disk_line(found: Needs) -> str:
    """Returns what a run keeps on the disk, and what is free there."""
    parts = ", ".join(f"{name} {size / _MB:,.1f} MB" for name, size in found.disk.parts.items())
    return f"disk: {parts}; {found.disk.free / _MB:,.0f} MB are free"


def show(config: Config) -> float:
    """Prints what a run would need and returns the seconds that it would take.

    Raises:
      UserError: whatever `fedwin.run` would refuse, or it does not fit this machine.
    """
    found = needs(config, say=print)
    seconds = found.pace.expected(found.checked.trial.schedule, completed(config, found.checked.directory))
    print("\n".join(_lines(found, seconds)), flush=True)
    return seconds


def _lines(found: Needs, seconds: float) -> list[str]:
    config, directory = found.checked.trial.config, found.checked.directory
    done, schedule, pace = completed(config, directory), found.checked.trial.schedule, found.pace
    seeds = f"{'seed' if len(done) == 1 else 'each of the seeds'} {','.join(map(str, config.seeds))}"
    begun = f"; done: {','.join(map(str, done))}" if any(done) else ""
    return [
        f"{directory}: {config.algorithm} on {config.dataset}, {config.model}, strategy {found.strategy}",
        memory_line(found),
        disk_line(found),
        f"rounds: {config.num_rounds:,} and {schedule.evaluations(0):,} evaluations for {seeds}{begun}",
        f"pace: {pace.seconds_per_round:.3g} s a round, {pace.seconds_per_evaluation:.3g} s an evaluation, "
        f"{pace.compile_seconds:.1f} s to compile",
        f"expected: {duration(seconds)}, without checkpoints; nothing was written",
    ]


def _work(config: Config) -> tuple:
    """Returns what decides what a run needs; runs that agree in it are examined once."""
    kept = (field.name for field in dataclasses.fields(Config) if field.name not in _RATES)
    return tuple(repr(getattr(config, name)) for name in kept)


def show_all(configs: Mapping[str, Config]) -> None:
    """Prints what each of several runs would need, and what they take together.

    Args:
      configs: label -> what would be run.

    Raises:
      UserError: whatever `fedwin.run` would refuse, or some do not fit this machine; the others are shown first.
    """
    total, refused = 0.0, []
    known: dict[tuple, tuple[str, float]] = {}
    for number, (label, config) in enumerate(configs.items()):
        print(f"[{number + 1}/{len(configs)}] {label}", flush=True)
        work = (_work(config), *completed(config, pathlib.Path(config.out_dir)))
        try:
            if work in known:
                print(f"as {known[work][0]}")
            else:
                known[work] = (label, show(config))
            total += known[work][1]
        except UserError as error:
            print(error)
            refused.append(label)
    print(f"in all: {duration(total)}")
    if refused:
        raise UserError(f"{len(refused)} of {len(configs)} runs can't be run as they are, the first is '{refused[0]}'.")
