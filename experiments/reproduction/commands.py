"""Shell commands that train the runs of a table again, forked runs after their parents, with the strategies used."""

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from fedwin.registry.choices import parse
from fedwin.runs.config import Config

from ..cli import command_line
from ..papers.trajectories import Checkpoint, Run
from .plan import all_tasks
from .store import Record, ResultStore, portable

# Data sets that need no files; synthetic ones neither.
WITHOUT_FILES = ("digits",)
SYNTHETIC = "_synthetic"
# What stands for the folder of the data in a command.
DATA_DIR = "DIR"
UNKNOWN = "strategy not recorded"


def commands(store: ResultStore, run: Run, scale: str) -> str:
    """Returns a command per record of a run, separated by ' ; '; '' if nothing has been trained.

    A fork's command trains the run that it forks first, into the directory that --fork_from names. All commands can be
    executed in one directory; runs that several of them name are trained once. If the strategy of a run is unknown, a
    comment at the end says so.

    Args:
      store: where records are read.
      run: the trajectory.
      scale: smoke, trend or paper.
    """
    lines, known, done = [], True, set[int]()
    for record in store.records(run):
        remaining = [seed for seed in record.seeds() if seed not in done]
        done |= {*remaining}
        for seeds in _groups(store, run, remaining):
            chain = list(_chain(store, run, seeds, scale))
            known = known and all("strategy" in fields for fields in chain)
            lines.append(" && ".join(_command(fields) for fields in chain))
    return " ; ".join(lines) + ("" if known or not lines else f"  # {UNKNOWN}")


def _groups(store: ResultStore, run: Run, seeds: list[int]) -> list[tuple[int, ...]]:
    """Returns the seeds in groups whose ancestors were trained with the same strategies."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for seed in seeds:
        strategies, ancestor = [], run.parent
        while ancestor is not None:
            record = _record_of(store, ancestor.run, seed)
            strategies.append(record.header.get("strategy", "") if record else "")
            ancestor = ancestor.run.parent
        groups.setdefault(tuple(strategies), []).append(seed)
    return [tuple(group) for group in groups.values()]


def _record_of(store: ResultStore, run: Run, seed: int) -> Record | None:
    """Returns the record of a seed of a run; None without one."""
    return next((record for record in store.records(run) if seed in record.seeds()), None)


def _chain(
    store: ResultStore, run: Run, seeds: tuple[int, ...], scale: str, needed: tuple[int, ...] = ()
) -> Iterator[dict[str, Any]]:
    """Yields the fields of the Configs that train a run, its ancestors first; checkpoints of `needed` are kept."""
    checkpoint = run.parent
    if checkpoint is not None:
        yield from _chain(store, checkpoint.run, seeds, scale, (checkpoint.round,))
    fields = _recorded(store, run, seeds[0]) | {"seeds": list(seeds), "out_dir": _directory(run, seeds)}
    task = all_tasks(scale).get(run.key)
    kept = {*needed, *fields.get("keep_rounds", ()), *(task.keep_rounds if task is not None else ())}
    fields["keep_rounds"] = sorted(kept - {run.num_rounds})  # a run's last checkpoint is kept anyway
    if checkpoint is not None:
        fields |= _start(checkpoint, seeds)
    choice = parse(fields["dataset"])
    if choice.name not in WITHOUT_FILES and not choice.name.endswith(SYNTHETIC):
        fields["data_dir"] = DATA_DIR
    yield fields


def _recorded(store: ResultStore, run: Run, seed: int) -> dict[str, Any]:
    """Returns the fields with which a seed of a run was trained; the catalogue's if it has no record."""
    record = _record_of(store, run, seed)
    if record is None:
        return portable(vars(run.config()), "")
    fields = portable(record.header["config"], "")
    strategy = record.header.get("strategy")
    return {name: fields[name] for name in fields if name != "strategy"} | ({"strategy": strategy} if strategy else {})


def _directory(run: Run, seeds: Iterable[int]) -> str:
    return f"runs/{run.key}-seed{'-'.join(map(str, seeds))}"


def _start(checkpoint: Checkpoint, seeds: Iterable[int]) -> dict[str, str]:
    """Returns --fork_from or --init_from: the directory that the parent's command creates."""
    text = f"{_directory(checkpoint.run, seeds)}@{checkpoint.round}"
    return {"init_from": f"{text}:part={checkpoint.part}"} if checkpoint.part else {"fork_from": text}


def _command(fields: dict[str, Any]) -> str:
    config = Config(**{name: value for name, value in fields.items() if name in Config.__dataclass_fields__})
    return shlex.join(["fedwin", "train", *command_line.flags_of(config)])
