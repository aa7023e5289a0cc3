"""Fault injection: interrupts and damages random small runs, and compares what they resume to with undisturbed runs.

  python -m experiments.soak --minutes=10

Every run is killed, interrupted, left without disk space or altered on the disk one to four times, or resumed in
another environment. A run with altered files or an altered data cache may be rejected in one line; any other must end
with the model, the evaluations and the summary of an undisturbed run, bit by bit, unless a `note:` has named the change
of the environment. Needs Linux; small disks are mounted if that is permitted. Ends with status 1 after any difference.
"""

import concurrent.futures
import itertools
import json
import pathlib
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import flags

from fedwin.errors import UserError
from fedwin.runs import signals
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.metrics_log import read_lines

from ..compare import every_method
from . import soak_faults
from .soak_faults import Disk, Ended, TrainingProcesses

ROUNDS = 120
COMMON = (
    "--dataset=digits",
    "--num_clients=20",
    "--clients_per_round=3",
    "--batch_size=16",
    f"--num_rounds={ROUNDS}",
)
WRAPPERS = ((), (), ("ima:window=4,start=0.5",), ("swa:start=0.5,cycle=4",), ("clip:norm=1",))
OBSERVERS = (
    (),
    ("wima:window=5",),
    ("wima:window=3", "wima:window=10"),
    ("ema:decay=0.9",),
    ("swa:start=0.5,cycle=2",),
)
STRATEGIES = ("default", "vmapped", "chunked:k=1", "chunked:k=2", "sharded:devices=2,k=1")


def methods() -> list[list[str]]:
    """Returns the flags of every variant of an algorithm that `fedwin compare` trains."""
    variants = []
    for text in every_method():
        algorithm, *own = shlex.split(text)
        own = [flag for flag in own if not flag.startswith(("--partition=", "--wrap="))]
        # WSM needs clients of several classes.
        uses_classes = any(flag.startswith("--loss=") for flag in own)
        variants.append([f"--algorithm={algorithm}", f"--partition=dirichlet:alpha={0.3 if uses_classes else 0}", *own])
    return variants


def random_flags(rng: random.Random) -> list[str]:
    """Returns random flags of a run, without its directory."""
    flags = [*COMMON, *rng.choice(methods())]
    flags += [f"--wrap={name}" for name in rng.choice(WRAPPERS)]
    flags += [f"--observe={name}" for name in rng.choice(OBSERVERS)]
    if rng.random() < 0.1:  # diverges
        flags = [flag for flag in flags if not flag.startswith("--client_lr")] + ["--client_lr=1e6"]
    return [
        *flags,
        f"--model=digits_mlp:hidden={rng.choice((4, 8, 12))}",
        f"--strategy={rng.choice(STRATEGIES)}",
        f"--examples={rng.choice(('device', 'stream'))}",
        f"--table={rng.choice(('device', 'host', 'file'))}",
        f"--window={rng.choice(('device', 'host', 'file'))}",
        f"--seeds={rng.choice(('0', '1', '0,1'))}",
        f"--eval_every={rng.randint(1, 8)}",
        f"--final_evals={rng.randint(1, 20)}",
        f"--checkpoint_every={rng.choice((0, 6, 8, 15, 30))}",
        f"--keep_checkpoints={rng.choice((1, 2, 3, 3))}",
        f"--rounds_per_dispatch={rng.randint(3, 12)}",
    ]


SIGNALS = {
    "SIGKILL": (signal.SIGKILL,),
    "SIGTERM": (signal.SIGTERM,),
    "SIGINT": (signal.SIGINT,),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
}
STORAGE = ("full disk", "failing writes", "file-size limit", "full output")
KINDS = (*SIGNALS, *STORAGE, "altered file", "altered cache", "environment")
# Kind of fault -> exit status of the run, unless it finishes before.
STATUS = {"SIGKILL": -9, "SIGTERM": 143, "SIGINT": 130, "SIGINT twice": 130} | dict.fromkeys(STORAGE, 1)
TIMES = ("wall_seconds", "compile_seconds", "rounds_per_second")
RUNS_PER_SETTING = 5


class Report:
    """Counts of faults and failures.

    Attributes:
      counts: kind of fault or failure -> count.
      failures: a line each.
    """

    def __init__(self):
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    def failed(self, kind: str, training: TrainingProcesses, details: str) -> None:
        """Records and prints a failure with the flags of the run."""
        self.counts[kind] += 1
        self.failures.append(f"{kind}: {details} -- {' '.join(training.flags)}")
        print(f"FAILED {self.failures[-1]}", file=sys.stderr, flush=True)

    def table(self) -> str:
        """Returns the counts, one per line."""
        kinds = [*KINDS, "ended before", "refused", "notes", "other with a note", "runs compared", "settings"]
        bad = ("differing bytes", "wrong evaluations", "wrong summaries", "wrong endings")
        return "\n".join(f"{name:18} {self.counts[name]:6}" for name in (*kinds, *bad))


def outcome(directory: pathlib.Path) -> tuple[dict, list, dict]:
    """Returns what interruptions must not change: leaves of the last checkpoints, evaluations, summary."""
    leaves: dict[str, np.ndarray] = {}
    for place in sorted((directory / "checkpoints").iterdir()):
        store = Checkpoints(place)
        arrays = store.load(store.rounds()[-1])[0]
        leaves |= {f"{place.name} {name}": np.asarray(value) for name, value in arrays.items()}  # large ones are lazy
    lines = [{k: v for k, v in line.items() if k != "seconds"} for line in read_lines(directory / "metrics.jsonl")]
    summary: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    for name in ("traces", "metrics", "seal"):  # the hashes cover the times, too
        summary.pop(name, None)
    for seed, name in itertools.product(summary["seeds"].values(), TIMES):
        del seed[name]
    return leaves, lines, summary


def differing_bytes(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> int:
    """Returns the number of different bytes, including those of arrays that only one side has.

    Args:
      mine: name -> array.
      theirs: name -> array.
    """
    odd = sum(each[name].nbytes for each in (mine, theirs) for name in mine.keys() ^ theirs.keys() if name in each)
    both = ((np.frombuffer(mine[n].tobytes(), "u1"), theirs[n].tobytes()) for n in mine.keys() & theirs.keys())
    return odd + sum(int((a != np.frombuffer(b, "u1")).sum()) if len(a) == len(b) else len(a) for a, b in both)


def disturb(training: TrainingProcesses, disk: Disk | None, lines: int, rng: random.Random, report: Report) -> bool:
    """Injects a random fault into a run; returns False if the run is then rejected.

    Args:
      training: the run.
      disk: a full disk can be simulated on; None: not permitted.
      lines: number of lines that the run writes to metrics.jsonl.
      rng: of the fault.
      report: is updated.
    """
    kinds = [k for k in KINDS if disk or k != "full disk"]
    kind = rng.choice([*kinds, "altered file", "environment"])
    if kind in ("altered file", "altered cache"):
        cached = kind == "altered cache"
        place = training.directory.parent / "data"
        if not (soak_faults.altered_cache(place, rng) if cached else soak_faults.altered(training.directory, rng)):
            return disturb(training, disk, lines, rng, report)  # there is no file yet
        ended, expected = training.run(), (0, 2)
    elif kind == "environment":
        if not (training.directory / "config.json").exists():  # it has not started yet
            return disturb(training, disk, lines, rng, report)
        change, ended = soak_faults.other_environment(training, lines, rng)
        expected = (0, -9)
        report.counts["notes"] += len(ended.notes)
        names = soak_faults.ENVIRONMENTS[change][1]
        if ended.notes and not any(name.lower() in ended.notes[0].lower() for name in names):
            report.failed("wrong endings", training, f"{change}: the note names something else: {ended.notes[0]}")
    elif kind in SIGNALS:
        ended, expected = soak_faults.signalled(training, lines, rng, *SIGNALS[kind]), (0, STATUS[kind])
    else:
        act: dict[str, Callable[[], Ended]] = {
            "failing writes": lambda: soak_faults.failing_writes(training, rng),
            "file-size limit": lambda: soak_faults.limited_size(training, rng),
            "full output": lambda: soak_faults.full_output(training),
        }
        if disk:
            act["full disk"] = lambda: disk.full(training, rng)
        ended, expected = act[kind](), (0, STATUS[kind])
    report.counts[kind] += 1
    check_ending(kind, training, ended, expected, report)
    if not kind.startswith("altered"):
        report.counts["ended before"] += ended.status == 0
        return True
    report.counts["refused"] += ended.status == 2
    return ended.status != 2


def check_ending(
    kind: str, training: TrainingProcesses, ended: Ended, expected: tuple[int, ...], report: Report
) -> None:
    """Checks the exit status of a process, and that it printed at most one line.

    Args:
      kind: of the fault.
      training: the run.
      ended: its process.
      expected: exit statuses.
      report: is updated.
    """
    lines = 1 if ended.status in (1, 2) else 0
    if ended.status not in expected or len(ended.errors) != lines or "Traceback" in ended.stderr:
        report.failed("wrong endings", training, f"{kind} ended with {ended.status}: {ended.stderr[-2000:]}")


def run_of(
    flags_: list[str], undisturbed: tuple, place: pathlib.Path, cache: pathlib.Path, rng, report: Report
) -> None:
    """Disturbs a run until it finishes, and compares it with the outcome of an undisturbed one.

    Args:
      flags_: of the run.
      undisturbed: its `outcome` without faults.
      place: folder of the run.
      cache: folder of compiled programs.
      rng: of the faults.
      report: is updated.
    """
    disk = Disk(place)
    with disk.mounted() as allowed:
        place.mkdir(exist_ok=True)
        data = shutil.copytree(place.parents[1] / "data", place / "data")
        training = TrainingProcesses(place / "run", [*flags_, f"--data_dir={data}"], cache)
        for _ in range(rng.randint(1, 4)):
            if not disturb(training, disk if allowed else None, len(undisturbed[1]), rng, report):
                return
        last = training.run()
        check_ending("the last process", training, last, (0,), report)
        if last.status:
            return
        disturbed = outcome(training.directory)
    report.counts["runs compared"] += 1
    if training.notes and (differing_bytes(disturbed[0], undisturbed[0]) or disturbed[1:] != undisturbed[1:]):
        report.counts["other with a note"] += 1
        return
    if number := differing_bytes(disturbed[0], undisturbed[0]):
        report.failed("differing bytes", training, f"{number} bytes")
        report.counts["differing bytes"] += number - 1
    if disturbed[1] != undisturbed[1]:
        report.failed("wrong evaluations", training, "metrics.jsonl differs")
    if disturbed[2] != undisturbed[2]:
        report.failed("wrong summaries", training, f"{disturbed[2]} is not {undisturbed[2]}")


def setting(number: int, seed: int, place: pathlib.Path, until: float, runs: int, report: Report) -> None:
    """Draws random flags, trains an undisturbed run with them, and then disturbs `runs` others.

    Args:
      number: of the draw of flags.
      seed: of everything that is drawn.
      place: folder of the runs.
      until: time after which no run is started.
      runs: number of disturbed runs.
      report: is updated.
    """
    rng = random.Random(f"{seed} {number}")
    flags_of_run = random_flags(rng)
    place.mkdir()
    data_flag = f"--data_dir={place.parent / 'data'}"
    training = TrainingProcesses(place / "whole", [*flags_of_run, data_flag], place.parent / "cache")
    ended = training.run()
    if ended.status == 2:  # not every wrapper supports every algorithm
        shutil.rmtree(place, ignore_errors=True)
        return
    if ended.status != 0:
        report.failed("wrong endings", training, f"undisturbed, ended with {ended.status}: {ended.stderr[-2000:]}")
        return
    report.counts["settings"] += 1
    undisturbed = outcome(training.directory)
    for k in range(runs):
        if time.monotonic() < until or (k == 0 and number == 0):
            run_of(
                flags_of_run, undisturbed, place / f"{k}", training.cache, random.Random(f"{seed} {number} {k}"), report
            )
    shutil.rmtree(place)


def soak(minutes: float, seed: int, jobs: int, place: pathlib.Path, runs: int = RUNS_PER_SETTING) -> Report:
    """Disturbs runs for some minutes.

    Args:
      minutes: how long.
      seed: of everything that is drawn.
      jobs: number of concurrent runs.
      place: folder of the runs.
      runs: per draw of flags.
    """
    for name in ("cache", "data"):
        (place / name).mkdir()
    prepared = soak_faults.prepare_data(place / "data")
    if prepared.status:
        raise UserError(f"The digits cannot be prepared: {prepared.stderr[-500:].strip()}")
    report, until, numbers = Report(), time.monotonic() + 60 * minutes, itertools.count()

    def work() -> None:
        for number in numbers:
            setting(number, seed, place / f"{number}", until, runs, report)
            if time.monotonic() > until:
                return

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work) for _ in range(jobs)]:
            done.result()
    return report


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_float("minutes", 10.0, "Duration in minutes.", lower_bound=0)
    flags.DEFINE_integer("seed", 0, "Seed of everything that is drawn.")
    flags.DEFINE_integer("jobs", 2, "Number of concurrent runs.", lower_bound=1)
    return {"flags": ["minutes", "seed", "jobs"]}


def main(argv: list[str]) -> None:
    """Disturbs runs and prints the counts."""
    if sys.platform != "linux":
        raise UserError("fedwin soak needs Linux.")
    options = flags.FLAGS
    place = pathlib.Path(tempfile.mkdtemp(prefix="fedwin-soak-"))
    signals.before_exit(lambda: shutil.rmtree(place, ignore_errors=True))
    report = soak(options.minutes, options.seed, options.jobs, place)
    print(report.table())
    shutil.rmtree(place, ignore_errors=True)
    sys.exit(1 if report.failures else 0)
