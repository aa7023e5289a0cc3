"""--dry_run: prints the requirements of a run (memory, disk, rounds, hours) without training or writing anything."""

import dataclasses
import pathlib
from collections.abc import Container, Mapping, Sequence

from absl import flags

from fedwin.errors import UserError, escape
from fedwin.files import InUse
from fedwin.runs.checkpoint import seed_checkpoints
from fedwin.runs.config import Config
from fedwin.runs.plan import seed_groups
from fedwin.runs.run import measure_requirements
from fedwin.runs.start import fork_round, fork_source

_MB = 1e6
# Fields that do not change the requirements.
_RATES = ("client_lr", "lr_decay", "lr_warmup", "out_dir")


def readable(seconds: float) -> str:
    """Returns a duration for people.

    >>> readable(0.2), readable(720), readable(12600)
    ('0.2 s', '12 min', '3.5 h')
    """
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def training(seeds: Sequence[int], at_once: int, begun: Container[int]) -> list[int]:
    """Returns the seeds that train on: those of groups before the last one that has begun have ended."""
    groups = seed_groups(seeds, at_once)
    last = max((number for number, group in enumerate(groups) if any(seed in begun for seed in group)), default=0)
    return [seed for group in groups[last:] for seed in group]


def completed(config: Config, directory) -> tuple[list[int], list[int]]:
    """Returns the completed rounds of each seed, those of its newest checkpoint, and those of the seeds that train on.

    The others were stopped early, or diverged: in a finished run, or in one that trains a later seed.
    """
    found = {seed: seed_checkpoints(directory, seed) for seed in config.seeds}
    try:
        saved = {seed: checkpoints.rounds()[-1:] for seed, checkpoints in found.items()}
    except OSError as error:
        raise UserError(f"{directory}/checkpoints can't be read ({error.strerror}).") from error
    done = {seed: (last or [fork_source(config).round if config.fork_from else 0])[0] for seed, last in saved.items()}
    on = training(config.seeds, config.seeds_at_once, [seed for seed, last in saved.items() if last])
    on = [] if (pathlib.Path(directory) / "summary.json").is_file() else on
    goes_on = lambda seed: seed in on and found[seed].about(done[seed]).get("stopped_at") is None
    left = [rounds for seed, rounds in done.items() if rounds >= config.num_rounds or goes_on(seed)]
    return list(done.values()), left


def define(groups: dict[str, list[str]]) -> None:
    """Defines --dry_run among the flags that say how a run is computed."""
    text = "Time a few rounds, print the requirements (memory, disk, rounds, hours), and write nothing."
    flags.DEFINE_bool("dry_run", False, text)
    groups["execution"].append("dry_run")


def show(config: Config) -> float:
    """Prints a run's requirements; returns its expected seconds; raises UserError if it is rejected or does not fit."""
    required = measure_requirements(config, say=print)
    plan, directory, timing = required.checked.plan, required.checked.directory, required.timing
    config, schedule, memory = plan.prepared.config, plan.prepared.schedule, required.requirements
    done, left = completed(config, directory)
    seconds = timing.expected(schedule, left)
    host, device = required.available
    rooms = [("total", memory.parts, host)]
    if device is not None:
        rooms = [("each device", memory.device, device), ("main memory", memory.host, host)]
    of = lambda free: f" of {free / _MB:,.0f} MB that are available"
    used = ", ".join(f"{name} {sum(parts.values()) / _MB:,.0f} MB{of(free)}" for name, parts, free in rooms)
    files = ", ".join(f"{name} {size / _MB:,.1f} MB" for name, size in memory.disk.items())
    seeds = f"{'seed' if len(done) == 1 else 'each of the seeds'} {','.join(map(str, config.seeds))}"
    finished = f"; done: {','.join(map(str, done))}" if any(done) else ""
    finished += f"; ended early: {len(done) - len(left)}" if len(left) < len(done) else ""
    lines = [
        f"{directory}: {config.algorithm} on {config.dataset}, {config.model}",
        f"plan: {plan}",
        f"{memory}; {used}",
        f"disk: {files}; {required.free_disk / _MB:,.0f} MB are free",
        f"{schedule.describe(fork_round(config))}, for {seeds}{finished}",
        f"pace: {timing.seconds_per_round:.3g} s a round, {timing.seconds_per_evaluation:.3g} s an evaluation, "
        f"{timing.compile_seconds:.1f} s to compile; timed: {timing.timed}",
        f"expected: {readable(seconds)}, without checkpoints; nothing was written",
    ]
    print("\n".join(map(escape, lines)), flush=True)
    return seconds


def show_all(configs: Mapping[str, Config]) -> None:
    """Prints the requirements of several runs and their total time; raises UserError at the end if some are refused."""
    total, refused = 0.0, []
    # Of runs that agree in all fields that change the requirements only one is timed.
    decisive = [field.name for field in dataclasses.fields(Config) if field.name not in _RATES]
    timed: dict[tuple, tuple[str, float]] = {}
    for number, (label, config) in enumerate(configs.items()):
        print(f"[{number + 1}/{len(configs)}] {label}", flush=True)
        fields = tuple(repr(getattr(config, name)) for name in decisive)
        try:
            key = (fields, repr(completed(config, pathlib.Path(config.out_dir))))
            if key in timed:
                print(f"as {timed[key][0]}")
            else:
                timed[key] = (label, show(config))
            total += timed[key][1]
        except InUse as error:  # another process trains it
            print(error)
        except UserError as error:
            print(error)
            refused.append(label)
    print(f"in all: {readable(total)}")
    if refused:
        raise UserError(f"{len(refused)} of {len(configs)} runs would be refused, the first is '{refused[0]}'.")
