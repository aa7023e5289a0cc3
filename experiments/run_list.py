"""The runs below a folder: what they train, how far they are."""

import json
import os
import pathlib
from typing import Any

from fedwin.errors import UserError
from fedwin.runs.metrics_log import read_lines

from .text import columns

HEAD = ("run", "algorithm", "data set", "rounds", "seeds", "state")


def directories(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns every directory of a run below a folder (or the folder itself), sorted."""
    found = []
    for place, below, files in os.walk(folder):
        below.sort()
        if "config.json" in files:
            found.append(pathlib.Path(place))
            below.clear()  # checkpoints and events
    return found


def facts(directory: pathlib.Path) -> dict[str, Any] | None:
    """Reads one run; None if its config.json is not that of a run."""
    try:
        config = json.loads((directory / "config.json").read_text())["config"]
        seeds = [int(seed) for seed in config["seeds"]]
        named = {"algorithm": config["algorithm"], "dataset": config["dataset"], "num_rounds": config["num_rounds"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    done = dict.fromkeys(seeds, 0)
    state = "finished" if (directory / "summary.json").is_file() else "unfinished"
    try:
        for line in read_lines(directory / "metrics.jsonl"):
            if line["seed"] in done:
                done[line["seed"]] = max(done[line["seed"]], line["round"])
    except UserError:
        state = "damaged"
    return named | {"seeds": seeds, "rounds": min(done.values(), default=0), "state": state}


def table(folder: str = "runs") -> str:
    """Returns a row per run; raises UserError if there is no such folder."""
    root = pathlib.Path(folder)
    if not root.is_dir():
        raise UserError(f"{folder}: there is no such folder; name one that holds runs, `fedwin list runs FOLDER`.")
    rows: list[tuple[str, ...]] = []
    for directory in directories(root):
        if (run := facts(directory)) is not None:
            rounds = f"{run['rounds']} of {run['num_rounds']}"
            seeds = ",".join(map(str, run["seeds"]))
            rows.append((str(directory), run["algorithm"], run["dataset"], rounds, seeds, run["state"]))
    return columns([HEAD, *rows]) if rows else f"no runs in {folder}"
