"""What a reproduction would take: every run with its hours, the cells that it fills and the data that it lacks."""

from fedwin.errors import UserError
from fedwin.runs.config import Config
from fedwin.runs.dry_run import Pace
from fedwin.runs.schedule import Schedule

from ..dry_run import disk_line, memory_line
from ..papers.trajectories import Run
from ..text import columns
from . import together
from .data_there import missing
from .places import Unit
from .work import readable

# Fields that decide how long a round takes; the hours of one run stand for all that agree in these.
WORK = ("dataset", "model", "clients_per_round", "num_clients", "local_epochs", "batch_size", "augment")


def shape(run: Run) -> tuple:
    """Returns what decides how long a round takes."""
    config = run.config()
    return (*(getattr(config, name) for name in WORK), config.algorithm.partition(":")[0])


def seconds(config: Config, known: Pace, completed: list[int]) -> float:
    """Returns the seconds that are left to run, of all seeds."""
    schedule = Schedule(config.num_rounds, config.clients_per_round, config.eval_every, config.final_evals, 0)
    return known.expected(schedule, completed)


def table(units: list[Unit], data_dir: str) -> str:
    """Returns a line per run directory, and the memory and disk that every kind of work takes.

    A few rounds are timed of each kind; nothing is kept of them.

    Args:
      units: run directories.
      data_dir: folder of the data sets' files.
    """
    paces: dict[tuple, Pace | str] = {}
    rows = [("run", "algorithm", "data", "seeds", "rounds left", "time", "fills")]
    total, unknown = 0.0, 0
    lacking: dict[str, str] = {}
    takes: list[str] = []
    for unit in units:
        config = unit.task.run.config(**unit.task.fields(), data_dir=data_dir)
        left = unit.rounds_left()
        fills = ", ".join(f"{name} ({count})" for name, count in sorted(unit.task.uses.items())) or "forks"
        told = _told(unit, config, paces, lacking, takes) if left else "done"
        if isinstance(told, float):
            total, told = total + told, readable(told)
        elif left:
            unknown += 1
        cells = (
            unit.task.run.key,
            config.algorithm,
            config.dataset,
            " ".join(map(str, unit.seeds)),
            f"{left:,}",
            told,
            fills,
        )
        rows.append(cells)
    lines = [columns(rows), f"in all about {readable(total)}" + (f", {unknown} run(s) unknown" if unknown else "")]
    lines += takes + [f"{dataset}: {reason}" for dataset, reason in lacking.items()]
    return "\n".join(lines)


def _told(unit: Unit, config: Config, paces: dict, lacking: dict[str, str], takes: list[str]) -> float | str:
    """Returns the seconds that are left to run, or why they are not known; adds what such work takes."""
    work = shape(unit.task.run)
    reason = missing(config.dataset, config.data_dir)
    if reason:
        lacking[config.dataset] = reason
        return "data missing"
    if work not in paces:
        try:
            found = together.estimated(config)
            takes += [f"{unit.task.run.key}: {line}" for line in (memory_line(found), disk_line(found))]
            paces[work] = found.pace
        except UserError as error:
            paces[work] = str(error)
    known = paces[work]
    return known if isinstance(known, str) else seconds(config, known, unit.completed())
