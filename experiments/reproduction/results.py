"""Result store: records of run directories and of the project's stored results, found by the key of their run."""

import collections
import datetime
import functools
import os
import pathlib
import platform
from collections.abc import Iterable
from typing import Any

import numpy as np

from fedwin import data
from fedwin.errors import UserError
from fedwin.runs.config import Config
from fedwin.runs.schedule import Schedule

from .. import records
from ..figures import stored as figure_files
from ..figures.sources import readout_name
from ..papers.measures import Curve
from ..papers.trajectories import Run
from ..records import DEFAULTS, MODEL, Json, Record

# The project's stored results.
RESULTS = pathlib.Path(__file__).parent.parent / "results"
# Results are stored in a checkout; an installed package has a copy of them, and is never written to.
IN_CHECKOUT = (RESULTS.parent.parent / "setup.py").is_file()
# Digits of accuracies and losses that are stored.
DIGITS = 5
# The entry of a figure's data with what its claims compare, by seed; a figure without claims needs none.
READINGS = "readings"
# What a stored record takes from config.json.
OF_CONFIG = ("fingerprint", "versions", "device", "strategy")
# Fields of Config that depend on the machine are not stored, others may repeat the run.
NOT_STORED = ("out_dir", "data_dir")
# Fields of Config that are stored even at their defaults.
ALWAYS = ("algorithm", "dataset", "num_rounds", "eval_every", "final_evals", "seeds")


class Results:
    """Records of runs; a packed run is read once, a directory every time.

    Args:
      *folders: with directories KEY/* of runs, packed runs KEY-seed*, and data of figures; the first ones count.
    """

    def __init__(self, scale: str, *folders: pathlib.Path):
        self.scale, self.folders = scale, folders
        self._read = functools.cache(records.read)

    @functools.cached_property
    def packed(self) -> dict[str, list[pathlib.Path]]:
        """Key of a run -> its packed runs."""
        found = collections.defaultdict[str, list[pathlib.Path]](list)
        for folder in self.folders:
            for path in sorted(folder.glob(f"*-seed*{records.SUFFIX}")):
                found[path.name.partition("-seed")[0]].append(path)
        return dict(found)

    def records(self, run: Run) -> list[Record]:
        """Returns all records of a run."""
        places = [path.parent for folder in self.folders for path in sorted((folder / run.key).glob("*/config.json"))]
        return [*map(records.read, places), *map(self._read, self.packed.get(run.key, []))]

    def record_of(self, run: Run, seed: int) -> Record | None:
        """Returns the first record of a seed of a run; None without one."""
        return next((record for record in self.records(run) if seed in record.seeds), None)

    def seconds(self, run: Run) -> dict[int, float]:
        """Returns seed -> seconds of training of a run on processors, without those of its parent."""
        by_processors = [each for each in self.records(run) if each.about.get("device", "cpu").startswith("cpu")]
        return {seed: value for record in by_processors for seed, value in record.seconds.items()}

    def figure(self, stem: str, seeds: Iterable[int] = ()) -> pathlib.Path | None:
        """Returns the first file of the data of a figure, with the readings of some seeds; None without one."""
        files = (path for folder in self.folders if (path := folder / f"{stem}.json").is_file())
        has = lambda path: figure_files.read(path)[0].get(READINGS, {}).keys() if seeds else ()
        return next((path for path in files if set(map(str, seeds)) <= set(has(path))), None)


def stored(scale: str) -> Results:
    """Returns the project's stored results of a scale."""
    return Results(scale, RESULTS / scale)


def covers(config: Json, required: Json) -> bool:
    """Whether a run has all read-outs of another one, and is evaluated at least as often."""
    dense = required["eval_every"] % config["eval_every"] == 0
    dense = dense and (config["eval_every"] == 1 or config["final_evals"] >= required["final_evals"])
    return dense and set(required["observe"]) <= set(config["observe"])


def keep(run: Run, directory: pathlib.Path, folder: pathlib.Path) -> bool:
    """Packs a finished run without checkpoints, training loss and paths; returns False if the folder has it already.

    A packed run that lacks read-outs or evaluations of this one is replaced, if this one has all of its own.

    Raises:
      UserError: the run's data are not those of the scale.
    """
    trained = records.read(directory)
    path = folder / f"{run.key}-seed{'-'.join(map(str, trained.seeds))}{records.SUFFIX}"
    if path.is_file():
        there = records.read(path).config
        if covers(there, trained.config) or not covers(trained.config, there):
            return False
    source = provenance(trained.config["dataset"], trained.config["data_dir"])
    if source["subset"] and folder.name == "paper":
        raise UserError(
            f"{run.key} is not stored: --scale=paper needs the complete data set, and {trained.config['dataset']} has "
            f"{source['subset']}."
        )
    about = {"config": portable(trained.config, run.parent.run.key if run.parent else "")}
    about |= {name: trained.about[name] for name in OF_CONFIG if name in trained.about}
    about["stored"] = {"machine": machine(), "data": source, "day": datetime.date.today().isoformat()}
    lines = [{name: rounded(each, DIGITS) for name, each in line.items() if name not in ("train_loss", "seconds")}
             for line in trained.lines]  # fmt: skip
    ends = {
        str(seed): {"wall_seconds": seconds, "diverged_at": trained.diverged.get(seed)}
        for seed, seconds in trained.seconds.items()
    }
    records.write(path, Record(about, lines, {"seeds": ends}))
    return True


def rounded(value: Any, decimals: int | None = None) -> Any:
    """Returns JSON values with `decimals` decimals of every float; with six significant digits for None."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if decimals is None else round(value, decimals)
    if isinstance(value, dict):
        return {name: rounded(each, decimals) for name, each in value.items()}
    return [rounded(each, decimals) for each in value] if isinstance(value, list) else value


@functools.cache
def provenance(dataset: str, data_dir: str) -> Json:
    """Returns numbers of examples, checksum and loaded part ('': all) of a data set; UserError if it can't be read."""
    loaded = data.load(dataset, data_dir)
    return {
        "train": len(loaded.train["y"]),
        "test": len(loaded.test["y"]),
        "checksum": data.checksum(loaded),
        "subset": data.describe_subset(dataset, loaded),
    }


def machine() -> str:
    """Returns this machine in words."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"


def portable(config: Json, parent_key: str) -> Json:
    """Returns the fields that differ from the defaults; a parent's directory is replaced by its run's key."""
    # A module has a name everywhere, a file a path on this machine.
    config = config | {"imports": [text for text in config["imports"] if not text.endswith(".py")]}
    stored = {name: value for name, value in config.items() if name not in NOT_STORED and value != DEFAULTS.get(name)}
    for name in ("fork_from", "init_from"):
        if stored.get(name):
            stored[name] = f"{parent_key}@{stored[name].rpartition('@')[2]}"
    return stored | {name: config[name] for name in ALWAYS}


def curves(results: Results, run: Run, read: str = "", metric: str = "accuracy") -> dict[int, Curve]:
    """Returns seed -> curve of a read-out; that of a fork begins with the curve of its parent's model.

    A record may contain more evaluations than the run asks for, because tables and figures share runs: the curve has
    those of the run's own eval_every and final_evals alone.

    Args:
      read: the read-out, an observer's text; empty: the trained model.
    """
    name, config = readout_name(read), run.config()
    by_seed: dict[int, Curve] = {}
    for record in results.records(run):
        for seed in record.seeds:
            curve = curve_of(record, seed, name, metric, config)
            if curve is not None and (seed not in by_seed or curve.rounds[-1] > by_seed[seed].rounds[-1]):
                by_seed[seed] = curve
    parent = run.parent
    if parent is None or parent.part is not None:
        return by_seed
    for seed, before in curves(results, parent.run, metric=metric).items():
        if (own := by_seed.get(seed)) is not None:
            early, late = before.rounds < parent.round, own.rounds >= parent.round
            by_seed[seed] = own._replace(
                rounds=np.concatenate([before.rounds[early], own.rounds[late]]),
                accuracy=np.concatenate([before.accuracy[early], own.accuracy[late]]),
                seconds=np.concatenate([before.seconds[early], own.seconds[late]]),
            )
    return by_seed


def curve_of(record: Record, seed: int, name: str, metric: str, config: Config) -> Curve | None:
    """Returns the curve of a seed in a record, with the evaluations of a Config; None without any."""
    own = [line for line in record.lines if line["seed"] == seed and metric in line.get(name, ())]
    schedule = Schedule(config)
    lines = [line for line in own if schedule.evaluated(line["round"])]
    if not lines:
        return None
    losses = [float(line[MODEL].get("loss", 0.0)) for line in own if MODEL in line]
    return Curve(
        np.array([line["round"] for line in lines]),
        np.array([float(line[name][metric]) for line in lines]),
        max(config.final_evals, 1),
        config.num_rounds,
        seed in record.diverged or not np.isfinite(losses).all(),
        np.array([line.get("simulated_seconds", np.nan) for line in lines]),
    )
