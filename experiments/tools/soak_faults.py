"""Faults that `fedwin soak` injects into runs: signals, full disks, failing writes, altered files."""

import contextlib
import dataclasses
import os
import pathlib
import random
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
    """

    status: int | None
    stderr: str

    @property
    def errors(self) -> list[str]:
        """Lines on stderr that report an error."""
        return [line for line in self.stderr.splitlines() if line.startswith("error:")]


class TrainingProcesses:
    """Processes that train in one directory.

    Args:
      directory: of the run.
      flags: all except --out_dir.
      cache: folder of compiled programs.
    """

    def __init__(self, directory: pathlib.Path, flags: list[str], cache: pathlib.Path):
        self.directory, self.flags, self.cache = directory, flags, cache

    @contextlib.contextmanager
    def started(self, *, code: tuple[str, ...] = ("-m", "experiments.train"), out=subprocess.DEVNULL, **more):
        """Yields (process, wait): `wait()` returns how it ended."""
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(self.cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        command = [sys.executable, *code, *self.flags, f"--out_dir={self.directory}"]
        with tempfile.TemporaryFile("w+", errors="replace") as stderr_file:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=stderr_file, start_new_session=True, **more
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
                return Ended(status, stderr_file.read())

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


def signalled(training: TrainingProcesses, lines: int, rng: random.Random, *numbers: signal.Signals) -> Ended:
    """Sends signals at a random moment, the second shortly after the first.

    Args:
      training: the run.
      lines: number of lines that the run writes to metrics.jsonl.
      rng: of the moment.
      *numbers: the signals.
    """
    with training.started() as (process, wait):
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
    digits = [at for at, byte in enumerate(data) if chr(byte).isdigit()] if path.suffix in (".json", ".jsonl") else []
    if digits and rng.random() < 0.5:
        at = rng.choice(digits)
        data[at : at + 1] = rng.choice("0123456789".replace(chr(data[at]), "")).encode()
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
