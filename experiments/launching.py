"""Hands runs to a launcher until each has ended: a job is one run directory and one `fedwin train` command.

The jobs of a search are processes that share its study, each with one `fedwin sweep` command.

What has ended is decided by the run directories alone: a run with summary.json has ended, one whose lock is held runs.
jobs/jobs.json holds the ids of jobs, which a scheduler may still know when the same command continues.
"""

import os
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from absl import flags

from fedwin import jax_config, multi_process
from fedwin.callbacks.scores import Summary
from fedwin.errors import UserError, escape
from fedwin.files import is_locked, locked, parse_json, write_json
from fedwin.launching.launchers import LAUNCHERS, Launcher
from fedwin.launching.work import Work
from fedwin.runs import signals
from fedwin.runs.config import Config
from fedwin.runs.directory import finished_summary, verified_summary

from .cli import command_line, unused

# Below the folder of the runs: the list of jobs, the output of each, and the launcher's own files; names of processes.
FOLDER, LIST, PROCESS = "jobs", "jobs.json", "search_process_"
FLAGS = ["launcher", "print_jobs"]
# Directory -> why its run has not finished.
Failures = dict[pathlib.Path, str]
Report = Callable[[dict[str, Summary]], object]


class Job(NamedTuple):
    """A run, or one process of a `search` by its flags; whether it is `ready` to start, and has `ended`."""

    label: str
    config: Config
    ready: Callable[[], bool] = lambda: True
    search: Sequence[str] = ()
    ended: Callable[[pathlib.Path], bool] = lambda directory: (directory / "summary.json").is_file()

    @property
    def command(self) -> list[str]:
        """The command, with the Python of this process."""
        module, own = ("sweep", self.search) if self.search else ("train", command_line.flags_of(self.config))
        return [sys.executable, "-m", f"{__package__}.{module}", *own]


def run_all(launcher: Launcher, configs: Mapping[str, Config], folder: pathlib.Path, report: Report) -> None:
    """Runs what is left, or prints the commands, and reports summaries of what has ended; UserError if some failed."""
    left = {label: config for label, config in configs.items() if finished_summary(config) is None}
    failed = launch(launcher, {pathlib.Path(c.out_dir): Job(label, c) for label, c in left.items()}, folder)
    ended = {label: summary for label, config in configs.items() if (summary := summary_of(label, config))}
    if launcher.jobs and ended:
        report(ended)
    conclude(failed)


def summary_of(label: str, config: Config) -> Summary | None:
    """Returns the summary of a run that has ended, with a note if the code of its imports has changed since."""
    summary = finished_summary(config)
    if summary is None and (pathlib.Path(config.out_dir) / "summary.json").is_file():
        note = f"note: '{label}' was trained with other code of --import; use another --out_dir to train it again."
        print(note, file=sys.stderr)
        summary = verified_summary(config.out_dir)
    return summary


def _print(jobs: Mapping[pathlib.Path, Job]) -> None:
    """Prints the command of every job that can start; raises UserError if one contains a line break."""
    lines = [shlex.join(job.command) for job in jobs.values() if job.ready()]
    if broken := [line for line in lines if len(line.splitlines()) > 1]:
        raise UserError(f"--print_jobs: a value of {broken[0]!r} contains a line break; leave it out.")
    print("".join(f"{line}\n" for line in lines), end="")
    if later := len(jobs) - len(lines):
        print(f"note: {later} run(s) start from others; print again when these have ended.", file=sys.stderr)
    elif not lines:
        print("note: no run is left; without --print_jobs this command writes the table.", file=sys.stderr)


def conclude(failed: Failures) -> None:
    """Raises UserError if a job has failed."""
    for path, line in failed.items():
        line = f"{len(failed)} run(s) failed, the first: {path}: {line.rstrip('.')}"
        raise UserError(f"{line}; the same command tries them again.")


def launch(launcher: Launcher, jobs: Mapping[pathlib.Path, Job], folder: pathlib.Path) -> Failures:
    """Executes jobs until each has ended or failed, or prints them; raises UserError if the command runs already."""
    if not launcher.jobs:
        _print(jobs)
    if not (launcher.jobs and jobs):
        return {}
    place = folder / FOLDER
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{place} can't be made ({error.strerror}); choose another --out_dir.") from error
    with locked(place):
        launcher.open(place / "submitit")
        signals.before_exit(launcher.stop)
        if (watch := signals.active()) is not None:
            watch.mark_saved()  # "the same command resumes"
        loop = _Loop(launcher, jobs, place)
        while loop.left():
            time.sleep(launcher.pause)
    return loop.failed


def entries(folder: pathlib.Path) -> dict[str, dict[str, str]]:
    """Returns run, relative to a folder -> 'id' in a queue, or the line that it 'failed' with; {}: it waits or runs."""
    try:
        return dict(parse_json((folder / FOLDER / LIST).read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


class _Loop:
    """Jobs that wait, and those that are out: run directory -> id."""

    def __init__(self, launcher: Launcher, jobs: Mapping[pathlib.Path, Job], place: pathlib.Path):
        self.launcher, self.jobs, self.place, self.failed = launcher, jobs, place, Failures()
        self.names = {path: os.path.relpath(path, place.parent) for path in jobs}
        before = {name: entry["id"] for name, entry in entries(place.parent).items() if "id" in entry}
        alive = launcher.alive(before.values())
        self.out = {path: before[name] for path, name in self.names.items() if before.get(name) in alive}
        self.waiting = dict.fromkeys(path for path in jobs if path not in self.out)
        self.written: dict[str, dict[str, str]] = {}
        print(f"{len(jobs)} job(s), {launcher.jobs} at a time; their output: {place}", flush=True)

    def left(self) -> bool:
        """Looks after all jobs once; returns whether some are left."""
        alive = self.launcher.alive(self.out.values())
        for path in [path for path, name in self.out.items() if name not in alive]:
            del self.out[path]
            error, last = _last_lines(self._log(path))
            if self.jobs[path].ended(path):
                self._end(path)
            elif " is in use by " in error or is_locked(path):  # another process was quicker, or outlives its job's
                self.waiting[path] = None
            else:
                self._end(path, error or f"it died; the end of {self._log(path)}: {last}")
        self._submit()
        now: dict[str, dict[str, str]] = {self.names[path]: {} for path in self.waiting}
        now |= {self.names[path]: {"id": name} if self.launcher.takes else {} for path, name in self.out.items()}
        now |= {self.names[path]: {"failed": line} for path, line in self.failed.items()}
        if now != self.written:
            write_json(self.place / LIST, now)
            self.written = now
        return bool(self.waiting or self.out)

    def _submit(self) -> None:
        """Hands over what can start and has room."""
        room = (self.launcher.takes or self.launcher.jobs) - len(self.out)
        chosen, others = list[pathlib.Path](), False  # whether other processes train some
        for path in list(self.waiting):
            if self.jobs[path].ended(path):
                self._end(path)
            elif len(chosen) < room and self.jobs[path].ready():
                if is_locked(path):
                    others = True
                else:
                    chosen.append(path)
        if chosen:
            works = [Work(self.jobs[path].command, self._log(path), self.launcher.environment) for path in chosen]
            for work in works:
                work.log.unlink(missing_ok=True)  # a job that is canceled in a queue writes none
            self.out |= dict(zip(chosen, self.launcher.submit(works), strict=True))
            self.waiting = {path: None for path in self.waiting if path not in self.out}
        elif not (others or self.out):
            for path in list(self.waiting):
                self._end(path, "the checkpoint that it starts from does not exist: its run has not ended, or diverged")

    def _end(self, path: pathlib.Path, failed: str = "") -> None:
        self.waiting.pop(path, None)
        self.failed |= {path: failed} if failed else {}
        number = len(self.jobs) - len(self.waiting) - len(self.out)
        how = f"failed: {failed}" if failed else "ended"
        print(escape(f"[{number}/{len(self.jobs)}] {self.jobs[path].label}: {how}"), flush=True)

    def _log(self, path: pathlib.Path) -> pathlib.Path:
        return self.place / f"{command_line.folder_name(self.names[path])}.log"


def _last_lines(log: pathlib.Path) -> tuple[str, str]:
    """Returns the error with which a command ended, '' without one, and its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").split("\n")] if log.is_file() else []
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return ["", *errors][-1], ["no output", *filter(None, lines)][-1]


def define(groups: dict[str, list[str]]) -> None:
    """Defines --launcher and --print_jobs among the flags that say how runs are executed."""
    flags.DEFINE_string("launcher", "", "Where runs are executed: local:jobs=2, slurm:time=2h, ray; empty: here.")
    text = "Print the commands of the runs that are left, for xargs or GNU parallel; train none."
    flags.DEFINE_bool("print_jobs", False, text)
    groups["execution"] += FLAGS


def chosen() -> Launcher | None:
    """Returns the launcher of the flags, and leaves GPUs to its jobs; None: this process trains."""
    values = flags.FLAGS
    if not (values.launcher or values.print_jobs):
        return None
    if values.dry_run or multi_process.is_joined():
        unused.refuse(FLAGS, "with --dry_run or in several processes")
    if values.print_jobs:
        unused.refuse(["launcher"], "with --print_jobs")
    jax_config.use_cpu_alone()
    return LAUNCHERS.build(values.launcher) if values.launcher else Launcher()
