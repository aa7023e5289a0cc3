"""Faults that `fedwin soak` injects into runs: signals, full disks, failing writes, altered files and caches,
another environment.
"""

import contextlib
import dataclasses
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from fedwin.runs import signals

ROOT = pathlib.Path(__file__).parents[2]
HANG_SECONDS = 300.0
_TRAIN = 'runpy.run_module("experiments.train", run_name="__main__", alter_sys=True)\n'
# Limits the size of files.
LIMITED = f"""
import resource, runpy, sys
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
{_TRAIN}"""
# Leaves one core out.
FEWER_CORES = f"""
import os, runpy
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:-1])
{_TRAIN}"""
# The n-th fsync, and all later ones, fail as on a full disk.
FAILING = f"""
import errno, os, runpy, sys
left, real = int(sys.argv.pop(1)), os.fsync
def fsync(handle):
    global left
    left -= 1
    if left < 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    real(handle)
os.fsync = fsync
{_TRAIN}"""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
      status: its exit status; None for one that hung.
      stderr: what it printed there.
      stdout: likewise; '' if it had another destination.
    """

    status: int | None
    stderr: str
    stdout: str = ""

    @property
    def errors(self) -> list[str]:
        """Lines on stderr that report an error."""
        return [line for line in self.stderr.splitlines() if line.startswith("error:")]

    @property
    def notes(self) -> list[str]:
        """Lines that report another environment than that of the run's start."""
        lines = (self.stdout + "\n" + self.stderr).splitlines()
        return [line for line in lines if line.startswith("note:") and "may differ from now on" in line]


class TrainingProcesses:
    """Processes that train in one directory.

    Args:
      directory: of the run.
      flags: all except --out_dir.
      cache: folder of compiled programs.

    Attributes:
      notes: lines of all processes that report another environment.
    """

    def __init__(self, directory: pathlib.Path, flags: list[str], cache: pathlib.Path):
        self.directory, self.flags, self.cache = directory, flags, cache
        self.notes: list[str] = []

    @contextlib.contextmanager
    def started(self, *, code: tuple[str, ...] = ("-m", "experiments.train"), out=None, variables=None, **more):
        """Yields (process, wait): `wait()` returns how it ended; `variables` are added to the environment."""
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(self.cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "FEDWIN_CACHE_DIR": str(self.cache.parent / "user"),
        }
        environment |= variables or {}
        command = [sys.executable, *code, *self.flags, f"--out_dir={self.directory}"]
        with (
            tempfile.TemporaryFile("w+", errors="replace") as stderr_file,
            tempfile.TemporaryFile("w+", errors="replace") as stdout_file,
        ):
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=out or stdout_file,
                stderr=stderr_file,
                start_new_session=True,
                **more,
            )

            signals.before_exit(process.kill)

            def wait() -> Ended:
                try:
                    status = process.wait(HANG_SECONDS)
                except subprocess.TimeoutExpired:
                    status = None
                    process.kill()
                    process.wait()
                stderr_file.seek(0)
                stdout_file.seek(0)
                ended = Ended(status, stderr_file.read(), stdout_file.read())
                self.notes += ended.notes
                return ended

            try:
                yield process, wait
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def run(self, **more) -> Ended:
        """Runs a process to its end."""
        with self.started(**more) as (_, wait):
            return wait()


def hears(process: subprocess.Popen) -> bool:
    """Whether a process has installed its signal handlers."""
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def _await_moment(process: subprocess.Popen, directory: pathlib.Path, lines: int, rng: random.Random) -> None:
    """Waits for a random moment, during start-up or before the run has written `lines` lines."""
    path = directory / "metrics.jsonl"
    until = time.monotonic() + rng.uniform(0, 3) if rng.random() < 0.3 else None
    wanted = rng.randint(1, lines)
    while process.poll() is None:
        time.sleep(0.003)
        if not hears(process):
            continue
        if until is not None and time.monotonic() > until:
            return
        if until is None and path.exists() and path.read_bytes().count(b"\n") >= wanted:
            time.sleep(rng.uniform(0, 0.05))
            return


def signalled(training: TrainingProcesses, lines: int, rng: random.Random, *numbers: signal.Signals, **more) -> Ended:
    """Sends signals at a random moment, the second shortly after the first.

    Args:
      training: the run.
      lines: number of lines that the run writes to metrics.jsonl.
      rng: of the moment.
      *numbers: the signals.
      **more: arguments of `TrainingProcesses.started`.
    """
    with training.started(**more) as (process, wait):
        _await_moment(process, training.directory, lines, rng)
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            if number != numbers[-1]:
                time.sleep(rng.uniform(0, 0.3))
        return wait()


def failing_writes(training: TrainingProcesses, rng: random.Random) -> Ended:
    """Trains with a random fsync failing for lack of space."""
    return training.run(code=("-c", FAILING, str(rng.randint(0, 25))))


def full_output(training: TrainingProcesses) -> Ended:
    """Trains with standard output on a full device."""
    with open("/dev/full", "w") as full:
        return training.run(out=full)


def limited_size(training: TrainingProcesses, rng: random.Random) -> Ended:
    """Trains with a random limit on the size of files."""
    limit = rng.randint(1 << 10, 40 << 10)
    with tempfile.TemporaryDirectory() as place:  # the limit would damage the shared cache
        cache = shutil.copytree(training.cache, pathlib.Path(place) / "cache")
        limited = TrainingProcesses(training.directory, training.flags, cache)
        return limited.run(code=("-c", LIMITED, str(limit)))


def altered(directory: pathlib.Path, rng: random.Random) -> str:
    """Alters a random file of a run; returns how, or an empty string if there is no file.

    An edited file remains valid: one digit has another value.
    """
    saved = sorted(path for path in directory.glob("checkpoints/seed_*/[0-9]*/**/*") if path.is_file())
    # Checkpoints have many files: the kind is drawn first.
    kinds = (*([directory / name] for name in ("metrics.jsonl", "config.json", "summary.json")), saved)
    files = [each for each in kinds if each and each[0].is_file()]
    if not files:
        return ""
    path = rng.choice(rng.choice(files))
    data = bytearray(path.read_bytes())
    how = rng.choice(("flipped", "flipped", "truncated", "removed", "grown"))
    if path.suffix in (".json", ".jsonl") and rng.random() < 0.5:
        accuracies = [match.span() for match in re.finditer(rb'"accuracy": *[0-9.]+', data)]
        span = rng.choice(accuracies) if accuracies and rng.random() < 0.5 else (0, None)
        if edit_digit(data, rng, *span):
            path.write_bytes(data)
            return "edited"
    if how == "removed":
        path.unlink()
        return how
    if how == "truncated":
        del data[rng.randint(0, len(data)) :]
    elif how == "grown":
        at = rng.randint(0, len(data))
        data[at:at] = rng.randbytes(rng.randint(1, 40))
    elif data:
        for _ in range(rng.choice((1, 1, 30))):
            data[rng.randrange(len(data))] ^= rng.randint(1, 255)
    path.write_bytes(data)
    return how


def edit_digit(data: bytearray, rng: random.Random, start: int = 0, end: int | None = None) -> bool:
    """Replaces a random digit of data[start:end] by another one; returns False if there is none."""
    digits = [at for at in range(start, len(data) if end is None else end) if chr(data[at]) in "0123456789"]
    if not digits:
        return False
    at = rng.choice(digits)
    data[at : at + 1] = rng.choice("0123456789".replace(chr(data[at]), "")).encode()
    return True


def prepare_data(place: pathlib.Path) -> Ended:
    """Writes a packed cache of the digits into a folder."""
    command = [sys.executable, "-m", "experiments.prepare", "--dataset=digits"]
    command += [f"--data_dir={place}", f"--cache_dir={place}"]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True)
    return Ended(ended.returncode, ended.stderr, ended.stdout)


def altered_cache(place: pathlib.Path, rng: random.Random) -> bool:
    """Edits a digit of a cache's meta.json, mostly one of the mean or the standard deviation.

    Args:
      place: the folder with the cache.
      rng: of the edit.

    Returns:
      False if there is no cache.
    """
    path = next(place.glob("*.fedwin/meta.json"), None)
    if path is None:
        return False
    data = bytearray(path.read_bytes())
    start = data.find(rng.choice((b'"mean"', b'"std"')))
    if start < 0 or rng.random() < 0.25:
        edited = edit_digit(data, rng)
    else:
        edited = edit_digit(data, rng, start, data.index(b"]", start))
    path.write_bytes(data)
    return edited


# Change of the environment -> variables, and the names by which a note may report it; "cores" removes one core.
ENVIRONMENTS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "oneDNN off": ({"FEDWIN_ONEDNN": "off"}, ("oneDNN",)),
    "oneDNN on": ({"FEDWIN_ONEDNN": "on"}, ("oneDNN",)),
    "threefry": ({"JAX_THREEFRY_PARTITIONABLE": "0"}, ("jax_threefry_partitionable",)),
    "XLA_FLAGS": ({"XLA_FLAGS": "--xla_cpu_enable_fast_min_max=false"}, ("XLA_FLAGS",)),
    "harmless XLA_FLAGS": ({"XLA_FLAGS": "--xla_hlo_profile=false"}, ("XLA_FLAGS",)),
    "cores": ({}, ("cores", "oneDNN")),
}


def other_environment(training: TrainingProcesses, lines: int, rng: random.Random) -> tuple[str, Ended]:
    """Resumes a run in another environment, to its end or until it is killed.

    Args:
      training: the run.
      lines: number of lines that the run writes to metrics.jsonl.
      rng: of the change.

    Returns:
      The change, a key of `ENVIRONMENTS`, and how the process ended.
    """
    cores = len(os.sched_getaffinity(0))
    change = rng.choice([name for name in ENVIRONMENTS if name != "cores" or cores > 1])
    more: dict = {"variables": ENVIRONMENTS[change][0]}
    if change == "cores":
        more["code"] = ("-c", FEWER_CORES)
    if rng.random() < 0.5:
        return change, training.run(**more)
    return change, signalled(training, lines, rng, signal.SIGKILL, **more)


class Disk:
    """A small disk in memory, which the superuser can mount.

    Args:
      place: mount point.
    """

    def __init__(self, place: pathlib.Path):
        self.place = place

    def mount(self, options: str) -> bool:
        """Mounts the disk, or changes it with `remount,size=...`; returns whether that was permitted."""
        self.place.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(self.place)]
        return shutil.which("mount") is not None and not subprocess.run(command, capture_output=True).returncode

    @contextlib.contextmanager
    def mounted(self) -> Iterator[bool]:
        """Mounts the disk with enough space; yields whether that was permitted."""
        allowed = self.mount("size=64m")
        unmount = lambda: subprocess.run(["umount", "--lazy", str(self.place)], capture_output=True)
        if allowed:
            signals.before_exit(unmount)
        try:
            yield allowed
        finally:
            if allowed:
                unmount()

    def full(self, training: TrainingProcesses, rng: random.Random) -> Ended:
        """Trains with a random amount of free space, and then restores the size."""
        used = shutil.disk_usage(self.place).used // 4096 * 4096
        # A size of 0 means no limit, which is permanent.
        self.mount(f"remount,size={max(used + rng.randint(0, 60) * 4096, 4096)}")
        try:
            return training.run()
        finally:
            self.mount("remount,size=64m")
