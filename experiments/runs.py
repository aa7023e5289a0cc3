"""Shows the runs below folders (runs/) with their progress, or deletes them.

fedwin runs [FOLDER ...]
fedwin runs --delete runs/first runs/compared    asks before it deletes the files of these runs; --yes does not ask
"""

import pathlib
import sys
from typing import Any

from absl import flags

from fedwin.callbacks.scores import WIDTH, plain_table
from fedwin.errors import UserError
from fedwin.files import check_unlocked, is_locked, parse_json, read_bytes
from fedwin.runs.checkpoint import seed_checkpoints
from fedwin.runs.directory import delete
from fedwin.runs.metrics_log import read_lines

from .cli import requirements, subcommand, unused
from .launching import FOLDER, LIST, PROCESS, entries
from .records import run_directories

ARGUMENTS = "[FOLDER ...]"
HEAD = ("run", "algorithm", "data set", "rounds", "seeds", "state")


def progress(directory: pathlib.Path) -> dict[str, Any] | None:
    """Returns algorithm, data set, rounds, seeds and state of a run; None if config.json is not that of a run."""
    try:
        config = parse_json(read_bytes(directory / "config.json"))["config"]
        seeds = [int(seed) for seed in config["seeds"]]
        settings = {name: config[name] for name in ("algorithm", "dataset", "num_rounds")}
        settings["seeds_at_once"] = config.get("seeds_at_once", 1)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    done = dict.fromkeys(seeds, 0)
    state = "finished" if (directory / "summary.json").is_file() else "unfinished"
    try:
        done = {seed: max(seed_checkpoints(directory, seed).rounds(), default=0) for seed in seeds}
        for line in read_lines(directory / "metrics.jsonl"):
            if line["seed"] in done:
                done[line["seed"]] = max(done[line["seed"]], line["round"])
        ended = parse_json(read_bytes(directory / "summary.json")).get("seeds", {}) if state == "finished" else {}
        for how in ("diverged", "stopped"):
            if count := sum(each.get(f"{how}_at") is not None for each in ended.values()):
                state += f", {count} {how}"
    except (UserError, OSError, ValueError):
        state = "damaged"
    return settings | {"seeds": seeds, "rounds": min(done.values(), default=0), "state": state}


def _now(place: pathlib.Path, run: dict[str, Any], job: dict[str, str] | None) -> str:
    """Returns what happens to a run now; `job` is its entry in the list of a launcher, None if nobody will start it."""
    if run["state"] != "damaged" and (place / "summary.json").is_file():  # perhaps since its progress was read
        return "ended"
    held = is_locked(place)
    if job is not None and "failed" in job and not held:
        return f"failed: {job['failed']}"
    if run["state"] == "damaged":
        return "damaged"
    if not held:
        return "stopped" if job is None else "queued"
    lines = read_lines(place / "metrics.jsonl")
    seed, round, seconds = (lines[-1][name] if lines else 0 for name in ("seed", "round", "seconds"))
    first = lines[0]["round"] if lines else 0  # not 0 if the run starts from another one
    if not seconds or round == first:
        return "running"
    done = dict.fromkeys(run["seeds"], first) | {line["seed"]: line["round"] for line in lines}
    pace = (round - first) / seconds
    on = requirements.training(run["seeds"], run["seeds_at_once"], {line["seed"] for line in lines})
    left = requirements.readable(sum(run["num_rounds"] - done[seed] for seed in on) / pace)
    return f"running: round {round} of seed {seed}, {pace:.3g} rounds/s, {left} left"


def states(folders: tuple[str, ...]) -> dict[pathlib.Path, dict[str, Any]]:
    """Returns directory -> progress of the runs below folders, those that a launcher has yet to start included."""
    lists = [path.parents[1] for folder in folders for path in pathlib.Path(folder).rglob(f"{FOLDER}/{LIST}")]
    jobs = dict[pathlib.Path, dict[str, str] | None]()
    for folder in lists:  # without its launcher, nobody starts what is in no queue
        goes_on = is_locked(folder / FOLDER)
        found = {name: job for name, job in entries(folder).items() if PROCESS not in name or "failed" in job}
        jobs |= {folder / name: job if job or goes_on else None for name, job in found.items()}
    waiting = dict.fromkeys((*HEAD, "dataset", "num_rounds"), "-") | {"seeds": ["-"]}
    runs = {place: waiting for place in jobs} | _found(folders)
    return {place: run | {"state": _now(place, run, jobs.get(place))} for place, run in sorted(runs.items())}


def table(*folders: str, now: bool = False, links: bool = True) -> str:
    """Returns a row per run below folders, and behind `links`, with `now` its state; UserError for a missing folder."""
    found = states(folders) if now else _found(folders, links)
    rows = [
        (str(place), run["algorithm"], run["dataset"], f"{run['rounds']} of {run['num_rounds']}")
        + (",".join(map(str, run["seeds"])), run["state"])
        for place, run in found.items()
    ]
    width = 10_000 if now else WIDTH  # what happened to a run is not cut
    return plain_table([HEAD, *rows], width) if rows else f"no runs in {', '.join(folders)}"


def _found(folders: tuple[str, ...], links: bool = True) -> dict[pathlib.Path, dict[str, Any]]:
    """Returns directory -> progress of the runs below folders."""
    for folder in folders:
        if not pathlib.Path(folder).is_dir():
            raise UserError(f"{folder}: there is no such folder; name one that contains runs, `fedwin runs FOLDER`.")
    places = [place for folder in folders for place in run_directories(pathlib.Path(folder), links)]
    return {place: run for place in places if (run := progress(place)) is not None}


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_bool("delete", False, "Delete the runs below the folders that are named; asks first.")
    flags.DEFINE_bool("yes", False, "Delete without asking, for scripts.")
    return {"deletion": ["delete", "yes"]}


def main(argv: list[str]) -> None:
    """Prints the runs, or deletes them."""
    folders, values = tuple(argv[1:]), flags.FLAGS
    if not values["delete"].value:
        unused.refuse(["yes"], "without --delete")
        print(table(*(folders or ("runs",))))
        return
    if not (folders and all(folders)):  # '' would be the working directory
        raise UserError("--delete: name the runs to delete, or folders of runs.")
    for link in filter(pathlib.Path.is_symlink, map(pathlib.Path, folders)):
        raise UserError(f"--delete: {link} is a symbolic link; name the directory itself, {link.resolve()}.")
    places = list(_found(folders, links=False))
    print(table(*folders, links=False), flush=True)
    for place in places:
        check_unlocked(place)
    if not places or not (values["yes"].value or _agreed(len(places))):
        print("nothing was deleted")
        return
    for place in places:
        delete(place)
        print(f"deleted {place}" + (", but not the files that are no run's" if place.exists() else ""))


def _agreed(count: int) -> bool:
    """Asks whether a number of runs are to be deleted; raises UserError where nobody can answer."""
    if not sys.stdin.isatty():
        raise UserError("--delete asks on a terminal; add --yes to delete without a question.")
    return input(f"delete {f'these {count} runs' if count > 1 else 'this run'}? [y/N] ").strip().lower() in ("y", "yes")


if __name__ == "__main__":
    subcommand.run(main, define_flags)
