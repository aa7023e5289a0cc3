"""Times fedwin against FedJAX, PyTorch and pfl-research on the same work: one table, interleaved runs.

  python -m experiments.bench
  python -m experiments.bench --cases=mlp,cifar_cnn --python_torch=/path/to/venv/bin/python
  python -m experiments.bench --cases= --studies=algorithms

Every peer is a process of its own and trains a few rounds in its turn, A B C A B C ...; a value is the median over
turns, with the quartiles beside it. Close other programs first.
"""

import json
import os
import pathlib
import platform
import sys
import time

from absl import flags

from experiments import train
from experiments.peers import studies
from experiments.peers.cases import CASES, scaled
from experiments.peers.crew import Crew
from experiments.peers.measure import Effort, table
from fedwin.engine.devices import MOST_CPU_DEVICES, num_cores
from fedwin.errors import UserError
from fedwin.registry import nearest

STUDIES = ("dispatches", "windows", "tables", "algorithms")
PEERS = ("fedjax", "torch", "pfl")
WITH_ROWS = ["scaffold", "fedhbm", "feddyn", "adabest"]


def define_flags() -> None:
    flags.DEFINE_list("cases", list(CASES), f"Cases to compare with the peers: {', '.join(CASES)}; empty = none.")
    flags.DEFINE_multi_string("cohort", [], "Another cohort for a case: CASE=CLIENTSxSTEPSxBATCH, e.g. lenet5=2x2x32.")
    flags.DEFINE_list("peers", list(PEERS), "Peers to compare with; those that are not installed are left out.")
    flags.DEFINE_list("studies", list(STUDIES[:3]), f"What else to measure: {', '.join(STUDIES)}; empty = nothing.")
    flags.DEFINE_string(
        "python_torch", os.environ.get("FEDWIN_PYTHON_TORCH", sys.executable),
        "Interpreter that has torch and pfl; also the variable FEDWIN_PYTHON_TORCH.",
    )  # fmt: skip
    flags.DEFINE_integer("cores", 0, "CPU devices of the sharded strategy; 0 = as experiments.train would use.")
    flags.DEFINE_integer("turns", 7, "How often every contestant has its turn.")
    flags.DEFINE_float("turn_seconds", 1.0, "How long a turn lasts (one round at least).")
    flags.DEFINE_float("case_seconds", 150.0, "Fewer turns (3 at least) where a case would take longer than this.")
    flags.DEFINE_string("json", "", "Also write all figures to this file.")
    flags.DEFINE_bool("quick", False, "A short run on tiny cohorts, to see that everything works.")


def chosen(name: str, known) -> list[str]:
    """Returns a list flag's values; raises UserError for one that does not exist."""
    values = [value for value in flags.FLAGS[name].value if value]
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
    return found


def ms(record) -> list[str]:
    return [f"{record['ms_per_round']:.2f}", "{:.2f} .. {:.2f}".format(*record["quartiles_ms"])]


def case_table(records) -> str:
    head = [
        "case",
        "cohort",
        "who",
        "rounds/s",
        "ms per round",
        "quartiles",
        "fedwin is faster",
        "wanted",
        "of GEMM peak",
    ]
    rows = []
    for r in records:
        faster = f"{r['times_default']:.2f} x" if r["who"] != studies.DEFAULT else f"({r['strategy']})"
        share = "-" if r["of_gemm_peak"] is None else f"{100 * r['of_gemm_peak']:.0f} %"
        target = f"{r['target']:g} x" if r["target"] else ""
        rows.append([r["case"], r["cohort"], r["who"], f"{r['rounds_per_second']:.2f}", *ms(r), faster, target, share])
    return table(head, rows)


def small_table(records, *columns) -> str:
    """A table of the named fields, then milliseconds per round, quartiles and the ratio."""
    ratio = next((name for name in records[0] if name.startswith("times_")), None)
    head = [*columns, "ms per round", "quartiles", *([ratio.replace("times_", "times ")] if ratio else [])]
    rows = [[*(r[c] for c in columns), *ms(r), *([f"{r[ratio]:.2f}"] if ratio else [])] for r in records]
    return table(head, rows)


def main(argv) -> None:
    if len(argv) > 1:
        raise UserError(f"'{argv[1]}' is not a flag; flags begin with --, see --help.")
    options, begun, cases = flags.FLAGS, time.monotonic(), cohorts()
    quick = options.quick
    names, wanted, peers = chosen("cases", CASES), chosen("studies", STUDIES), chosen("peers", PEERS)
    effort = Effort(2, 0.05, 5) if quick else Effort(options.turns, options.turn_seconds, options.case_seconds)
    short = effort if quick else Effort(options.turns, options.turn_seconds / 2, options.case_seconds)
    say = lambda line: print(f"[{time.monotonic() - begun:5.0f} s] {line}", file=sys.stderr, flush=True)
    write = lambda: options.json and pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    crew = Crew(peers, options.python_torch, options.cores or min(num_cores(), MOST_CPU_DEVICES), say)
    report = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "load_before": os.getloadavg(), "cases": []}
    try:
        if names:
            crew.look_for_gpu()
        for name in names:
            report["cases"] += studies.case(crew, cases[name], effort, 256 if quick else 2048, say)
            write()  # a long run that is stopped keeps what it has
        if "dispatches" in wanted:
            report["dispatches"] = studies.dispatches(crew, 50 if quick else 200)
        if "windows" in wanted:
            sizes = [(), (2,), (5,)] if quick else [(), (5,), (100,), (5, 10, 20, 50, 100)]
            report["windows"] = studies.windows(crew, short, sizes, say)
        if "tables" in wanted:
            totals = [10, 100] if quick else [100, 1000, 10000]
            report["tables"] = studies.tables(crew, short, WITH_ROWS[:1] if quick else WITH_ROWS, totals, say)
        if "algorithms" in wanted:
            from fedwin.algorithms import ALGORITHMS

            every = [entry.instances[0] for entry in ALGORITHMS.entries.values()]
            some = [cases["digits"]] if quick else [cases["digits"], scaled(CASES["lenet5"], "2x2x32")]
            report["algorithms"] = [
                r for c in some for r in studies.algorithms(crew, c, short, every[:3] if quick else every, say)
            ]
    finally:
        crew.close()
    report |= {"gpu": crew.gpu, "versions": crew.versions, "load_after": os.getloadavg()}
    load = f"{report['load_before'][0]:.1f} before, {report['load_after'][0]:.1f} after"
    print(f"{report['machine']}; gpu: {crew.gpu}; load average {load}\n")
    if report["cases"]:
        print(case_table(report["cases"]), "\n")
    if "dispatches" in report:
        print("digits, {rounds} rounds without evaluation: {dispatches_per_round:.3f} dispatches per round, {traces} trace(s), "
              "{compiled_later} compilation(s) after the first dispatch\n".format(**report["dispatches"]))  # fmt: skip
    for name, columns in (
        ("windows", ["windows"]),
        ("tables", ["algorithm", "clients"]),
        ("algorithms", ["case", "algorithm"]),
    ):
        if name in report:
            print(small_table(report[name], *columns), "\n")
    write()


if __name__ == "__main__":
    define_flags()
    train.run(main)
