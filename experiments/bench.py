"""Times fedwin against FedJAX, PyTorch, pfl-research, Flower and fluke on the same work, in alternating turns.

  python3 -m venv peers && peers/bin/pip install torch==2.14.1 torchvision==0.29.1 'setuptools<81'
  peers/bin/pip install pfl==0.6.0 'flwr[simulation]==1.41.0' fluke-fl==0.8.1
  fedwin bench --python_torch=peers/bin/python
  fedwin bench --cases=published
  fedwin bench --cases=digits --peers= --methods=fedavg --methods=scaffold --methods='fedavg --window=host'
  fedwin bench --device=gpu
  fedwin bench --cases=lenet5 --device=gpu --precision=tf32

Every contestant is a process that trains some rounds per turn, A B C A B C ...; values are medians over turns, with
quartiles, ratios medians of the turns' ratios. A product of two matrices takes its turns, too: its speed is the peak
that the shares refer to. On a GPU, --cases=accelerator is the default: three networks with every strategy and with
vmapped seeds, in at most ten minutes. Close other programs first.
"""

import dataclasses
import json
import math
import os
import pathlib
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

import jax
import numpy as np
from absl import flags

import fedwin
from fedwin import data
from fedwin.algorithms import ALGORITHMS
from fedwin.callbacks.scores import plain_table
from fedwin.errors import UserError
from fedwin.registry import ranges
from fedwin.runs.config import Config

from .cli import requirements, subcommand, unused
from .compare import parse_method
from .records import Json
from .tools import operations, timer
from .tools.peers.cases import CASES, OWN, PEERS, PUBLISHED, SIDE, Case, scaled

FLAGS = flags.FLAGS
FOLDER = pathlib.Path(__file__).parent / "tools" / "peers"
# Maximum bytes of a case's examples; every contestant holds several copies.
MOST_BYTES = 16 << 30
# Cohort and effort of --quick.
TINY, TINY_EFFORT = "2x2x5", timer.Effort(2, 0.05, 5)
FEDWIN, PRODUCT = "fedwin", f"product {SIDE} x {SIDE}"
PRODUCT_OPERATIONS = 2 * SIDE**3
# Cases of --cases=accelerator, what is compared there, the seconds of each, and those in which contestants start.
ACCELERATOR = ("lenet5", "resnet20", "transformer")
VARIANTS = ("--strategy=chunked:k=1", "--strategy=vmapped", "--strategy=vmapped --seeds=0,1,2,3 --seeds_at_once=4")
ACCELERATOR_EFFORT = timer.Effort(7, 1.0, 60.0, 110.0)
# Cases by group.
GROUPS = {"published": PUBLISHED, "accelerator": ACCELERATOR}
# Examples and inputs of a case with unequal clients, those of MNIST.
UNEQUAL = (60_000, 784)
# Characters of a line of the report.
TABLE_WIDTH = 200


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    known = f"{', '.join(OWN)}; " + "; ".join(f"{name}: {', '.join(cases)}" for name, cases in GROUPS.items())
    flags.DEFINE_list("cases", None, f"Cases to compare: {known}. Default: those before 'published'; gpu: accelerator.")
    flags.DEFINE_multi_string("cohort", [], "Another cohort for a case: CASE=CLIENTSxSTEPSxBATCH, e.g. lenet5=2x2x32.")
    flags.DEFINE_list("peers", list(PEERS), "Contestants besides fedwin; those that are not installed are left out.")
    text = "Further contestants: an algorithm with flags of `fedwin train`, as in `fedwin compare`; may be repeated."
    flags.DEFINE_multi_string("methods", [], text)
    flags.DEFINE_enum("device", "cpu", ("cpu", "gpu"), "Device of all contestants; pfl, Flower and fluke: CPU alone.")
    flags.DEFINE_enum("precision", "float32", ("float32", "tf32", "bfloat16"), "Precision of all contestants.")
    flags.DEFINE_string(
        "python_torch", os.environ.get("FEDWIN_PYTHON_TORCH", ""),
        "Interpreter that has torch, pfl and flwr; also the variable FEDWIN_PYTHON_TORCH; empty = this one.",
    )  # fmt: skip
    flags.DEFINE_integer("turns", 7, "Number of turns of every contestant.")
    flags.DEFINE_float("turn_seconds", 1.0, "Seconds of a turn (at least one round).")
    flags.DEFINE_float("case_seconds", 150.0, "Maximum seconds of a case, which limits its turns (at least 3).")
    flags.DEFINE_string("json", "", "File for all measurements as JSON.")
    flags.DEFINE_bool("quick", False, "Short test with tiny cohorts.")
    return {
        "measurements": ["cases", "cohort", "peers", "methods", "device", "precision", "quick"],
        "execution": ["python_torch", "turns", "turn_seconds", "case_seconds", "json"],
    }


def chosen(name: str, available: Iterable[str]) -> list[str]:
    """Returns the values of a list flag, which must be in `available`."""
    values = [value for value in FLAGS[name].value or () if value]
    for value in values:
        ranges.one_of(name, value, available)
    return values


def chosen_cases() -> list[Case]:
    """Returns the cases of --cases with the cohorts of --cohort and --quick; raises UserError for an unusable one."""
    names = chosen("cases", (*CASES, *GROUPS)) or (ACCELERATOR if FLAGS.device == "gpu" else OWN)
    names = list(dict.fromkeys(each for name in names for each in GROUPS.get(name, [name])))
    cases = {name: scaled(CASES[name], TINY) if FLAGS.quick else CASES[name] for name in names}
    for text in FLAGS.cohort:
        name, _, size = text.partition("=")
        if name in CASES and name not in cases:
            raise UserError(f"cohort={text} has no effect: {name} is not measured; add it to --cases, or omit it.")
        try:
            cases[name] = scaled(CASES[name], size)
        except (KeyError, ValueError) as error:
            raise UserError(f"cohort={text}: write CASE=CLIENTSxSTEPSxBATCH, e.g. lenet5=2x2x32.") from error
        needed = 4 * cases[name].total * cases[name].examples * math.prod(cases[name].shape)
        if needed > MOST_BYTES:
            raise UserError(
                f"cohort={text}: its examples fill {needed / 2**30:,.0f} GiB, more than {MOST_BYTES >> 30} GiB; set a "
                f"smaller cohort."
            )
    return list(cases.values())


def peers_of(case: Case) -> list[str]:
    """Returns the contestants of --peers that can train a case on the device."""
    cpu_alone = ("pfl", "flower", "fluke") if FLAGS.device == "gpu" else ()
    return [name for name in chosen("peers", PEERS) if name in case.peers and name not in cpu_alone]


def check(cases: Iterable[Case]) -> None:
    """Raises UserError for a number out of range, an idle contestant, a missing interpreter or GPU, or a bad --json."""
    if FLAGS.quick or for_accelerators():
        reason = "with --quick" if FLAGS.quick else "with --cases=accelerator"
        unused.refuse(["turns", "turn_seconds", "case_seconds"], f"{reason}, which has its own")
    ranges.check_values("bench", ranges.Range(1, 100_000), turns=FLAGS.turns)
    ranges.check_values("bench", ranges.Positive, turn_seconds=FLAGS.turn_seconds, case_seconds=FLAGS.case_seconds)
    measured = {name for case in cases for name in peers_of(case)}
    if FLAGS["peers"].present and (idle := [name for name in chosen("peers", PEERS) if name not in measured]):
        raise UserError(f"peers={idle[0]} has no effect: it trains none of the cases on a {FLAGS.device}; omit it.")
    if measured - {"fedjax"} and not shutil.which(FLAGS.python_torch or sys.executable):
        raise UserError(
            f"python_torch={FLAGS.python_torch}: no such program; name the interpreter that has torch, pfl "
            f"and flwr, or omit them, --peers=fedjax."
        )
    if FLAGS.device == "gpu":
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the contestants need the memory
        try:
            jax.devices("gpu")
        except RuntimeError as error:
            raise UserError("device=gpu: jax sees no GPU here; omit the flag (experiments/guide/gpus.md).") from error
    path = pathlib.Path(FLAGS.json)
    place = path if path.exists() else path.parent
    if FLAGS.json and (path.is_dir() or path.parent.is_file() or not os.access(place, os.W_OK)):
        raise UserError(f"json={path} can't be written; name a file in a folder that you can write to.")


def for_accelerators() -> bool:
    """Whether the cases are those of --cases=accelerator."""
    return "accelerator" in FLAGS.cases if FLAGS.cases else FLAGS.device == "gpu"


def config_of(case: Case) -> Config:
    """Returns the Config that trains a case."""
    return Config(
        algorithm=case.algorithm,
        model=case.model,
        partition="natural",
        num_clients=case.total,
        clients_per_round=case.clients,
        batch_size=case.batch,
        local_epochs=case.epochs,
        # Full batches, as the peers take them; unequal clients end with a partial one.
        batching="epoch" if case.file else "repeat",
        client_lr=case.lr,
        num_rounds=10**6,
        final_evals=1,
        checkpoint_every=0,
        precision=FLAGS.precision,
        imports=list(FLAGS["import"].value or ()),
    )


def contestants(case: Case) -> list[timer.Contestant]:
    """Returns every way to train a case; fedwin's default comes first."""
    sent = dataclasses.asdict(dataclasses.replace(case, published=None))
    device = "cuda" if FLAGS.device == "gpu" else "cpu"
    request = {"case": sent, "device": device, "precision": FLAGS.precision}
    paths = [str(pathlib.Path(fedwin.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(paths)}
    variables |= {"JAX_PLATFORMS": "cpu"} if FLAGS.device == "cpu" else {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if cache := jax.config.values["jax_compilation_cache_dir"]:
        variables["JAX_COMPILATION_CACHE_DIR"] = cache

    def own(label: str, config: Config) -> timer.Contestant:
        command = [sys.executable, str(FOLDER / "fedwin_peer.py")]
        return timer.Contestant(label, command, request | {"config": dataclasses.asdict(config)}, variables)

    base = config_of(case)
    texts = [f"{case.algorithm} {text}" for text in VARIANTS if for_accelerators()] + FLAGS.methods
    found = [
        own(FEDWIN, base),
        timer.Contestant(PRODUCT, [sys.executable, str(FOLDER / "product_peer.py")], request, variables),
    ]
    found += [own(f"{FEDWIN} {text}", parse_method(text, base)) for text in dict.fromkeys(texts)]
    for name in peers_of(case):
        python, more = (sys.executable, variables) if name == "fedjax" else (FLAGS.python_torch or sys.executable, {})
        command = [python, str(FOLDER / f"{name}_peer.py")]
        found.append(timer.Contestant(name, command, request, more))
        if name == "torch" and len(case.shape) == 3:
            found.append(timer.Contestant("torch channels-last", command, request | {"channels_last": True}, more))
        if name == "torch" and case.model in ("transformer", "vit"):
            found.append(timer.Contestant("torch compiled", command, request | {"compile": True}, more))
    return found


def with_file(case: Case, folder: pathlib.Path) -> Case:
    """Returns a case of unequal clients with its examples in a file; other cases as they are."""
    if not case.partition:
        return case
    generator = np.random.default_rng(0)
    x = generator.standard_normal(UNEQUAL, np.float32)
    y = generator.integers(0, case.classes, len(x)).astype(np.int32)
    parts = data.make_partition(data.from_arrays(x, y, x[:1], y[:1]), case.partition, case.total, 0)
    path = folder / f"{case.name}.npz"
    np.savez(path, x=x[parts.order], y=y[parts.order], sizes=parts.sizes)
    return dataclasses.replace(case, file=str(path))


def measure(case: Case, effort: timer.Effort, say: Callable[[str], None]) -> list[Json]:
    """Times a case; returns a record per contestant; raises UserError if fedwin itself could not train it."""
    say(f"{case.name}: {case}")
    with tempfile.TemporaryDirectory() as folder:
        runners = contestants(with_file(case, pathlib.Path(folder)))
        timings, failed = timer.take_turns(runners, effort, say)
    if FEDWIN not in timings:
        raise UserError(f"case {case.name}: fedwin itself could not run it ({failed[FEDWIN]}).")
    records = records_of(case, runners, timings)
    return records + [{"case": case.name, "cohort": str(case), "who": who, "absent": failed[who]} for who in failed]


def records_of(case: Case, runners: list[timer.Contestant], timings: dict[str, timer.Timing]) -> list[Json]:
    """Returns a record per contestant that ended its turns, with operations of a round and share of the peak."""
    work, records = operations.of_round(case), []
    for label, request in ((runner.label, runner.request) for runner in runners if runner.label in timings):
        seeds = len(request["config"]["seeds"]) if "config" in request else 1
        done = PRODUCT_OPERATIONS if label == PRODUCT else seeds * work
        record = {"case": case.name, "cohort": str(case), "who": label, "operations": done}
        record |= timings[label].summary(timings[FEDWIN])
        if PRODUCT in timings:
            times = timings[PRODUCT].summary(timings[label])["times_first"]
            record["share"] = done / PRODUCT_OPERATIONS * times
        records.append(record)
    return records


def main(argv: list[str]) -> None:
    """Measures, prints the tables and writes the records to --json."""
    started, cases = time.monotonic(), chosen_cases()
    check(cases)
    for text in FLAGS.methods:
        ALGORITHMS.check(parse_method(text, Config()).algorithm)
    say = lambda line: print(f"[{time.monotonic() - started:5.0f} s] {line}", file=sys.stderr, flush=True)
    effort = timer.Effort(FLAGS.turns, FLAGS.turn_seconds, FLAGS.case_seconds)
    effort = TINY_EFFORT if FLAGS.quick else ACCELERATOR_EFFORT if for_accelerators() else effort
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {FLAGS.device}, {FLAGS.precision}"
    report: Json = {"machine": machine, "load_before": os.getloadavg(), "records": []}
    try:
        for case in cases:
            report["records"] += measure(case, effort, say)
            report["load_after"] = os.getloadavg()
            if FLAGS.json:
                pathlib.Path(FLAGS.json).write_text(json.dumps(report, indent=1) + "\n")
    finally:  # an interrupted benchmark leaves its records, too
        if report["records"]:
            print(report_text(report))


def report_text(report: Json) -> str:
    """Returns machine, a row per case and contestant, and the published figures of the cases that have some."""
    parts = [f"{report['machine']}; load average {report['load_before'][0]:.1f} before"]
    head = ["case", "cohort", "who", "ms per round", "quartiles", "fedwin is faster"]
    head += ["GFLOP", "GFLOP/s", "of peak", "GiB"]
    rows, whole = [], []
    for r in report["records"]:
        cells = [r["case"], r["cohort"], r["who"]]
        if "absent" in r:
            rows.append([*cells, "absent", r["absent"], "", "", "", "", ""])
            continue
        faster = "" if r["who"] in (FEDWIN, PRODUCT) else f"{r['times_first']:.2f} x"
        times = [f"{r['ms_per_round']:.2f}", "{:.2f} .. {:.2f}".format(*r["quartiles_ms"]), faster]
        speed = [f"{r['operations'] / 1e9:.3g}", f"{r['operations'] / 1e6 / r['ms_per_round']:.0f}"]
        peak = [f"{r['share']:.1%}" if "share" in r else "", f"{r['memory'] / 2**30:.2f}" if r["memory"] else ""]
        rows.append([*cells, *times, *speed, *peak])
        known = CASES[r["case"]].published
        if r["who"] == FEDWIN and known is not None and r["cohort"] == str(CASES[r["case"]]):
            seconds = r["ms_per_round"] / 1e3 * known.share * known.rounds
            whole.append([r["case"], known.work, f"{known.rounds:,}", requirements.readable(seconds), known.figures])
    parts.append(plain_table([head, *rows], width=TABLE_WIDTH))
    if whole:
        parts.append("Whole work: a round's time x rounds, without start and tests, which published times include.")
        titles = ["case", "work", "rounds", "fedwin, extrapolated", "published"]
        parts.append(plain_table([titles, *whole], width=TABLE_WIDTH))
    return "\n\n".join(parts)


if __name__ == "__main__":
    subcommand.run(main, define_flags)
