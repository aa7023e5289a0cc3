"""Times fedwin against FedJAX, PyTorch, pfl-research and Flower on the same work: one table, interleaved runs.

  fedwin bench --install_peers
  fedwin bench --cases=mlp,cifar_cnn --python_torch=/path/to/venv/bin/python
  fedwin bench --cases= --studies=algorithms
  fedwin bench --suite=accelerator --data_dir=DIR --minutes=20

Every peer is a process of its own and trains a few rounds in its turn, A B C A B C ...; a value is the median over
turns, with the quartiles beside it. Close other programs first.
"""

import dataclasses
import json
import math
import os
import pathlib
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from absl import flags

from fedwin.algorithms import ALGORITHMS
from fedwin.engine.devices import MOST_CPU_DEVICES, num_cores
from fedwin.errors import UserError
from fedwin.registry import checks, nearest

from .accelerator import suite as accelerator
from .peers import environment, studies
from .peers.cases import CASES, scaled
from .peers.crew import Crew
from .peers.measure import Effort, table

STUDIES = ("dispatches", "evaluation", "windows", "tables", "places", "scale", "algorithms", "fedjax_program")
# More CPU devices than this only replicate the model.
MOST_CORES = 1024
# Bytes of examples that a case may have: peers hold them all, several copies of them.
MOST_BYTES = 16 << 30
PEERS = ("fedjax", "torch", "pfl", "flower")
EVALUATED = ("lenet5", "resnet20", "emnist_cnn")
WITH_ROWS = ["scaffold", "fedhbm", "feddyn", "adabest"]


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; importing this file from a test or another binary defines none."""
    flags.DEFINE_list("cases", list(CASES), f"Cases to compare with the peers: {', '.join(CASES)}; empty = none.")
    flags.DEFINE_multi_string("cohort", [], "Another cohort for a case: CASE=CLIENTSxSTEPSxBATCH, e.g. lenet5=2x2x32.")
    flags.DEFINE_list("peers", list(PEERS), "Peers to compare with; those that are not installed are left out.")
    flags.DEFINE_list("studies", list(STUDIES[:4]), f"What else to measure: {', '.join(STUDIES)}; empty = nothing.")
    flags.DEFINE_string(
        "python_torch", os.environ.get("FEDWIN_PYTHON_TORCH", ""),
        "Interpreter that has torch, pfl and flwr; also the variable FEDWIN_PYTHON_TORCH; empty = what --install_peers "
        "has made, else this one.",
    )  # fmt: skip
    flags.DEFINE_bool("install_peers", False, "Make an environment with torch, pfl and flwr in the cache directory.")
    flags.DEFINE_integer("cores", 0, "CPU devices of the sharded strategy; 0 = as `fedwin train` would use.")
    flags.DEFINE_integer("turns", 7, "How often every contestant has its turn.")
    flags.DEFINE_float("turn_seconds", 1.0, "How long a turn lasts (one round at least).")
    flags.DEFINE_float("case_seconds", 150.0, "Fewer turns (3 at least) where a case would take longer than this.")
    flags.DEFINE_string("json", "", "Also write all figures to this file.")
    flags.DEFINE_bool("quick", False, "A short run on tiny cohorts, to see that everything works.")
    what = ["cases", "cohort", "peers", "studies", "quick"]
    own = accelerator.define_flags()
    return {
        "what is measured": ["suite", *what],
        "how": ["install_peers", "python_torch", "cores", "turns", "turn_seconds", "case_seconds", "json"],
        **own,
    }


def chosen(name: str, known: Iterable[str]) -> list[str]:
    """Returns a list flag's values; raises UserError for one that does not exist."""
    values = [value for value in flags.FLAGS[name].value or () if value]
    for value in values:
        if value not in known:
            raise UserError(f"{name}: there is no '{value}'.{nearest(value, known)} Known: {', '.join(known)}.")
    return values


def cohorts() -> dict:
    """Returns the cases by name, with the cohorts that --cohort sets."""
    found = dict(CASES)
    if flags.FLAGS.quick:
        found = {name: scaled(case, "2x2x5") for name, case in found.items()}
    for text in flags.FLAGS.cohort:
        name, _, size = text.partition("=")
        try:
            found[name] = scaled(found[name], size)
        except (KeyError, ValueError) as error:
            raise UserError(f"cohort={text}: write CASE=CLIENTSxSTEPSxBATCH, e.g. lenet5=2x2x32.") from error
        needed = 4 * found[name].total * found[name].examples * math.prod(found[name].shape)
        if needed > MOST_BYTES:
            raise UserError(
                f"cohort={text}: its examples fill {needed / 2**30:,.0f} GiB, more than {MOST_BYTES >> 30} GiB; set a "
                f"smaller cohort."
            )
    return found


def check(options) -> None:
    """Raises UserError, before anything is started, for a number, interpreter or file that a run would fail with."""
    checks.number("bench", 1, 100_000, turns=options.turns)
    checks.number("bench", 0, open_least=True, turn_seconds=options.turn_seconds, case_seconds=options.case_seconds)
    checks.number("bench", 0, MOST_CORES, cores=options.cores)
    if set(PEERS[1:]) & set(chosen("peers", PEERS)) and not shutil.which(options.python_torch or sys.executable):
        raise UserError(
            f"python_torch={options.python_torch}: there is no such program; name the interpreter that has torch, pfl "
            f"and flwr, or omit them, --peers=fedjax."
        )
    path = pathlib.Path(options.json)
    if options.json and (path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK)):
        raise UserError(f"json={path} can't be written; name a file in a folder that exists and is yours.")


def measure(crew: Crew, report: dict[str, Any], effort: Effort, say: Callable[[str], None], write: Callable) -> None:
    """Runs what the flags ask for and puts the records into `report`.

    Args:
      crew: the peers.
      report: filled case by case.
      effort: how long to measure.
      say: where news go.
      write: keeps the report so far.
    """
    options, quick, known = flags.FLAGS, flags.FLAGS.quick, cohorts()
    names, wanted = chosen("cases", CASES), chosen("studies", STUDIES)
    short = effort if quick else dataclasses.replace(effort, turn_seconds=options.turn_seconds / 2)
    if names:
        crew.look_for_gpu()
    for name in names:
        report["cases"] += studies.case(crew, known[name], effort, 256 if quick else 2048, say)
        write()  # a long run that is stopped keeps what it has
    if "dispatches" in wanted:
        report["dispatches"] = studies.dispatches(crew, 50 if quick else 200)
    if "evaluation" in wanted:
        some = [known[name] for name in EVALUATED[: 1 if quick else None]]
        report["evaluation"] = studies.evaluation(crew, some, 20 if quick else 2000, short, say)
    if "windows" in wanted:
        sizes: list[tuple[int, ...]] = [(), (2,), (5,)] if quick else [(), (5,), (100,), (5, 10, 20, 50, 100)]
        report["windows"] = studies.windows(crew, short, sizes, say)
    if "tables" in wanted:
        totals = [10, 100] if quick else [100, 1000, 10000]
        report["tables"] = studies.tables(crew, short, WITH_ROWS[:1] if quick else WITH_ROWS, totals, say)
    if "places" in wanted:
        report["places"] = studies.places(crew, effort, quick, say)
    if "scale" in wanted:
        totals, grown = ([10, 1000], [10, 100]) if quick else ([100, 10**4, 10**6], [10, 100, 1000, 10**4])
        report["scale"] = studies.scale(crew, short, totals, grown, say)
    if "fedjax_program" in wanted:
        program = dataclasses.replace(CASES["emnist_cnn"], total=60, clients=12, examples=200, batch=20)
        program = dataclasses.replace(program, clients=3, examples=10, batch=5) if quick else program
        report["fedjax_program"] = studies.fedjax_program(crew, program, effort, say)
    if "algorithms" in wanted:
        every = [instance for entry in ALGORITHMS.entries.values() for instance in entry.instances[:1]]
        some = [known["digits"]] if quick else [known["digits"], scaled(CASES["lenet5"], "2x2x32")]
        report["algorithms"] = [
            r for c in some for r in studies.algorithms(crew, c, short, every[:3] if quick else every, say)
        ]


def main(argv: list[str]) -> None:
    """Measures, prints tables and writes the figures to --json."""
    options, begun = flags.FLAGS, time.monotonic()
    for name, known in (("cases", CASES), ("studies", STUDIES)):
        chosen(name, known)  # before anything is started
    cohorts()
    check(options)
    accelerator.check(options)
    effort = Effort(options.turns, options.turn_seconds, options.case_seconds)
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_before": os.getloadavg(),
    }
    report["cases"] = []
    say = lambda line: print(f"[{time.monotonic() - begun:5.0f} s] {line}", file=sys.stderr, flush=True)
    write = lambda: options.json and pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    cores = options.cores or min(num_cores(), MOST_CPU_DEVICES)
    made = environment.make(say) if options.install_peers else environment.interpreter()
    python_torch = options.python_torch or made or sys.executable
    imports = flags.FLAGS["import"].value or []
    if options.suite == "accelerator":
        print(accelerator.start(options, chosen("peers", PEERS), python_torch, imports, say))
        return
    crew = Crew(chosen("peers", PEERS), python_torch, cores, say, imports)
    try:
        measure(crew, report, Effort(2, 0.05, 5) if options.quick else effort, say, write)
    finally:
        crew.close()
    report |= {"gpu": crew.gpu, "versions": crew.versions, "load_after": os.getloadavg()}
    print(report_text(report))
    write()


# Studies with a small table, and its first columns.
SMALL = {
    "evaluation": ["case", "who"],
    "windows": ["windows"],
    "tables": ["algorithm", "clients"],
    "places": ["window"],
    "scale": ["algorithm", "clients", "cohort", "start s", "MB"],
    "algorithms": ["case", "algorithm"],
    "fedjax_program": ["algorithm"],
}


def report_text(report: dict[str, Any]) -> str:
    """Returns the whole report: machine, cases, dispatches, studies."""
    load = f"{report['load_before'][0]:.1f} before, {report['load_after'][0]:.1f} after"
    parts = [f"{report['machine']}; gpu: {report['gpu']}; load average {load}"]
    if report["cases"]:
        parts.append(case_table(report["cases"]))
    if "dispatches" in report:
        parts.append(
            "digits, {rounds} rounds without evaluation: {dispatches_per_round:.3f} dispatches per round, "
            "{traces} trace(s), {compiled_later} compilation(s) after the first dispatch".format(**report["dispatches"])
        )
    parts += [small_table(report[name], *columns) for name, columns in SMALL.items() if report.get(name)]
    return "\n\n".join(parts)


def ms(record: dict[str, Any]) -> list[str]:
    """Returns milliseconds per round and their quartiles."""
    return [f"{record['ms_per_round']:.2f}", "{:.2f} .. {:.2f}".format(*record["quartiles_ms"])]


def case_table(records: list[dict[str, Any]]) -> str:
    """Returns a row per case and contestant."""
    head = ["case", "cohort", "who", "rounds/s", "ms per round", "quartiles", "fedwin is faster", "wanted", "of peak"]
    rows = []
    for r in records:
        faster = f"{r['times_default']:.2f} x" if r["who"] != studies.DEFAULT else f"({r['strategy']})"
        share = "-" if r["of_gemm_peak"] is None else f"{100 * r['of_gemm_peak']:.0f} %"
        target = f"{r['target']:g} x" if r["target"] else ""
        rows.append([r["case"], r["cohort"], r["who"], f"{r['rounds_per_second']:.2f}", *ms(r), faster, target, share])
    return table(head, rows)


def small_table(records: list[dict[str, Any]], *columns: str) -> str:
    """Returns the named fields, then milliseconds per round, quartiles and the ratio."""
    ratio = next((name for name in records[0] if name.startswith("times_")), None)
    head = [*columns, "ms per round", "quartiles", *([ratio.replace("times_", "times ")] if ratio else [])]
    rows = [[*(r[c] for c in columns), *ms(r), *([f"{r[ratio]:.2f}"] if ratio else [])] for r in records]
    return table(head, rows)
