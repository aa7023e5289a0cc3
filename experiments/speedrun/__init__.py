"""Prints the records of the speedrun, or checks a new entry.

  fedwin speedrun
  fedwin speedrun check FOLDER --readout=wima100

The task: 50 % test accuracy on CIFAR-10 at 16x16, where each of 100 clients has one class and ten take part in a round,
in fewer rounds, or with fewer bytes, than the record. FOLDER has run.flags, the flags of `fedwin train`, and below it
the runs of seeds 0 to 4 or more. The rules are in the guide, experiments/guide/speedrun.md.
"""

import dataclasses
import datetime
import json
import pathlib
from typing import Any

import numpy as np
from absl import flags

from fedwin import analysis
from fedwin.callbacks.scores import plain_table
from fedwin.errors import UserError, escape
from fedwin.files import parse_json, read_bytes, replace_text
from fedwin.registry.ranges import one_of
from fedwin.runs import config as options
from fedwin.runs.config import Config

from .. import records
from ..cli import config_flags, flag_errors, subcommand, unused
from ..figures import sources
from ..papers import presets, standin
from ..papers.trajectories import EVALUATION, EXECUTION, Fields, Run
from ..records import Json, Line, Record
from ..reproduction import results
from ..tables.formats import markdown_table

ARGUMENTS = "[check FOLDER]"
FOLDER = pathlib.Path(__file__).parent / "records"
FLAGS, RECORD = "run.flags", "record.json"
# The target is reached where the mean of SPAN evaluations, one every EVERY rounds, is TARGET first: at the last one.
TARGET, EVERY, SPAN = 0.5, 20, 3
# Least number of seeds, level of the test, and most seconds of a seed on two cores.
SEEDS, LEVEL, SECONDS = 5, 0.01, 1800
TASK = standin.FEDERATIONS["alpha0"]
# Fields that a method may not change: data, clients, cohorts, network, what it starts from, and the test examples.
FIXED = {"model", "lora", "init_from", "fork_from", "attack", "eval_examples"}.union(
    options.DataOptions.__dataclass_fields__, options.ParticipationOptions.__dataclass_fields__
) - {"data_dir", "num_rounds"}
COSTS = ("rounds", "megabytes")


def stored() -> dict[str, Json]:
    """Returns folder -> contents of record.json, of all records."""
    return {path.parent.name: parse_json(read_bytes(path)) for path in sorted(FOLDER.glob(f"*/{RECORD}"))}


def mean(entry: Json, cost: str) -> float:
    """Returns the mean over seeds of a cost; for seeds that miss the target a lower bound counts."""
    return float(np.mean(list(entry["costs"][cost].values())))


def holders(entries: dict[str, Json], cost: str) -> list[str]:
    """Returns the folders of the records in one cost, the current one last."""
    return sorted((name for name in entries if cost in entries[name]["beats"]), key=lambda n: -mean(entries[n], cost))


def reached(lines: list[Line], readout: str) -> Json:
    """Reads from curves when each seed reaches the target.

    Returns:
      costs: cost -> seed -> until the target, or until the end of a run that misses it; missed: such seeds.
    """
    one_of("readout", readout, sources.readouts(lines))
    costs: dict[str, dict[str, float]] = {cost: {} for cost in COSTS}
    missed = []
    for seed in sorted({line["seed"] for line in lines}):
        own = [line for line in lines if line["seed"] == seed and line["round"] % EVERY == 0 and readout in line]
        rounds = np.array([line["round"] for line in own])
        if len(own) < SPAN or (np.diff(rounds) != EVERY).any():
            raise UserError(f"seed {seed} is not evaluated every {EVERY} rounds; train with --eval_every={EVERY}.")
        accuracy = np.convolve([line[readout]["accuracy"] for line in own], np.full(SPAN, 1 / SPAN), "valid")
        first = analysis.rounds_to_target(accuracy.round(6), TARGET, rounds[SPAN - 1 :])
        missed += [seed] if first is None else []
        end = own[-1] if first is None else own[list(rounds).index(first)]
        costs["rounds"][str(seed)] = end["round"]
        costs["megabytes"][str(seed)] = round((end["bytes_up"] + end["bytes_down"]) / 1e6, 3)
    return {"costs": costs, "missed": missed}


def config_of(path: pathlib.Path) -> Config:
    """Returns the Config of a flagfile; raises UserError if a flag is wrong or changes the task."""
    known = flags.FlagValues()
    config_flags.define(known)
    subcommand.define_import(known)
    try:
        known(presets.resolve(["train", f"--flagfile={path}"]))
    except UserError:
        raise
    except flag_errors.ERRORS as error:
        raise UserError(f"{path}: {flag_errors.message(error)}") from error
    config = config_flags.config_from_flags(known)
    config.check()
    for name in sorted(FIXED):
        value = TASK.get(name, records.DEFAULTS[name])
        if getattr(config, name) != value:
            raise UserError(f"{path}: {name}={getattr(config, name)} changes the task, which has {value!r}.")
    return config


def runs_of(folder: pathlib.Path) -> dict[pathlib.Path, Record]:
    """Returns an entry's runs, directories or else packed ones; raises UserError if they break a rule for entries."""
    places = records.run_directories(folder) or sorted(folder.glob(f"*{records.SUFFIX}"))
    found = {path: records.read(path) for path in places}
    seeds = sorted(seed for record in found.values() for seed in record.seeds)
    if seeds != list(range(max(len(seeds), SEEDS))):
        names = ", ".join(map(str, seeds)) or "none"
        raise UserError(f"{folder}: its runs have the seeds {names}; train 0 to {SEEDS - 1}, or more without gaps.")
    config = config_of(folder / FLAGS)
    for path, record in found.items():
        for field in dataclasses.fields(Config):
            trained, wanted = record.config[field.name], getattr(config, field.name)
            free = field.metadata["operational"] or field.name in {*EVALUATION, *EXECUTION} - FIXED
            if trained != wanted and not free:
                raise UserError(f"{path} was trained with {field.name}={trained}, not {wanted}, as {FLAGS} says.")
        device, longest = record.about["device"], max(record.seconds.values(), default=0.0)
        if record.summary is None:
            raise UserError(f"{path} has not finished; continue it.")
        if longest > SECONDS or not device.startswith("cpu"):
            raise UserError(f"{path}: {longest:.0f} s on {device}; the limit is {SECONDS} s on two cores of a CPU.")
    return found


def statistics(folder: pathlib.Path, readout: str) -> Json:
    """Returns read-out, method, costs and seconds of the longest seed of an entry; raises UserError as `runs_of`."""
    if not (folder / FLAGS).is_file():
        raise UserError(f"{folder} has no {FLAGS}; write the flags of `fedwin train` to it, one per line.")
    runs = runs_of(folder).values()
    about = {"method": " ".join([*dict.fromkeys(run.label for run in runs), readout]), "readout": readout}
    seconds = max(value for record in runs for value in record.seconds.values())
    return {**about, **reached([line for run in runs for line in run.lines], readout), "seconds": seconds}


def judged(entry: Json, others: dict[str, Json]) -> Json:
    """Returns cost -> the record that an entry is compared with (None: it is the first), p-value, whether it wins."""
    verdicts = {}
    for cost in COSTS:
        names, p = holders(others, cost), None
        record = names[-1] if names else None
        if record is not None:
            own, other = entry["costs"][cost], others[record]["costs"][cost]
            saved = {seed: other[seed] - own[seed] for seed in own if seed in other}
            two_sided = analysis.p_value(saved)  # paired: a seed has its partition, cohorts and initial model
            p = two_sided / 2 if np.mean(list(saved.values())) > 0 else 1 - two_sided / 2
        wins = record is None or p is None or (p < LEVEL and mean(entry, cost) < mean(others[record], cost))
        verdicts[cost] = {"record": record, "p": p, "wins": wins and not (names and entry["missed"])}
    return verdicts


def shown(entry: Json, cost: str, seed: str = "") -> str:
    """Returns a cost of a seed, or their mean; '> 952' where only a lower bound is known."""
    missed = int(seed) in entry["missed"] if seed else bool(entry["missed"])
    return f"{'> ' if missed else ''}{entry['costs'][cost][seed] if seed else mean(entry, cost):.0f}"


def report(entry: Json, verdicts: Json) -> str:
    """Returns the costs of an entry and the verdicts as text."""
    seeds = list(entry["costs"]["rounds"])
    body = [(cost, *(shown(entry, cost, seed) for seed in (*seeds, ""))) for cost in COSTS]
    lines = [plain_table([(entry["readout"], *(f"seed {seed}" for seed in seeds), "mean"), *body])]
    for cost, verdict in verdicts.items():
        reason = f", p = {verdict['p']:.2g} against {verdict['record']}" if verdict["record"] else ""
        reason += ", whose mean is not above this one" * bool(reason and not verdict["wins"] and verdict["p"] < LEVEL)
        reason = f", {len(entry['missed'])} of {len(seeds)} seeds miss the target" if entry["missed"] else reason
        lines.append(f"{cost}: {'a new record' if verdict['wins'] else 'no record'}{reason}")
    return "\n".join([*lines, f"longest seed: {entry['seconds'] / 60:.1f} of {SECONDS // 60} minutes"])


def keep(folder: pathlib.Path, entry: Json, verdicts: Json) -> None:
    """Packs the runs of a record into its folder and writes its statistics; raises UserError if it is not one."""
    beats = {cost: {"record": each["record"], "p": each["p"]} for cost, each in verdicts.items() if each["wins"]}
    if not beats:
        raise UserError(f"{folder} is not a record; it is not kept.")
    directories = records.run_directories(folder)
    if directories and (packed := sorted(folder.glob(f"*{records.SUFFIX}"))):
        raise UserError(f"{folder} has packed runs, such as {packed[0].name}; move them away to pack its other runs.")
    for path in directories:
        results.keep(Run(Fields(records.read(path).config)), path, folder)
    written = {**entry, "date": datetime.date.today().isoformat(), "beats": beats}
    replace_text(folder / RECORD, json.dumps(written, indent=1) + "\n")


def table() -> list[tuple[str, ...]]:
    """Returns a row per record, the head first."""
    entries = stored()
    found: list[tuple[str, ...]] = [("record in", "rounds", "MB", "method", "p", "date", "flags")]
    for cost in COSTS:
        for name in holders(entries, cost):
            entry, p = entries[name], entries[name]["beats"][cost]["p"]
            numbers = (*(shown(entry, each) for each in COSTS), entry["method"], "-" if p is None else f"{p:.2g}")
            found.append((cost, *numbers, entry["date"], f"{name}/{FLAGS}"))
    return found


def markdown() -> str:
    """Returns the table of records for the guide."""
    head, *body = table()
    linked = [(*cells, f"[{flagfile}](../speedrun/records/{flagfile})") for *cells, flagfile in body]
    return markdown_table(head, linked)


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_string("readout", None, "Read-out that reaches the target, such as wima100; by default the model.")
    flags.DEFINE_bool("keep", False, "Pack the runs of a new record into FOLDER and write its statistics.")
    return {"check": ["readout", "keep"]}


def main(argv: list[str]) -> None:
    """Prints the records, or the statistics of an entry."""
    values: Any = flags.FLAGS
    if len(argv) < 2:
        unused.refuse(["readout", "keep"], "without `check FOLDER`")
        print(plain_table(table()))
        print(escape(f"flags are below {FOLDER}"))
        return
    if argv[1] != "check" or len(argv) != 3:
        raise UserError("`fedwin speedrun` prints the records, `fedwin speedrun check FOLDER` checks an entry.")
    folder, entries = pathlib.Path(argv[2]), stored()
    before = entries.pop(folder.resolve().name, {}) if folder.resolve().parent == FOLDER.resolve() else {}
    entry = statistics(folder, values.readout or before.get("readout", records.MODEL))
    verdicts = judged(entry, entries)
    print(report(entry, verdicts))
    if values.keep:
        keep(folder, entry, verdicts)
