"""Launchers (`--launcher=local:jobs=2`): where the runs of a sweep, a comparison or a reproduction are executed."""

import contextlib
import getpass
import importlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from fedwin.errors import UserError, require
from fedwin.launching.work import Work
from fedwin.registry import Registry
from fedwin.registry.ranges import NonNegativeInt, PositiveInt

# Builders have the signature builder(*, option=...) -> Launcher.
LAUNCHERS = Registry("launcher", rule="where runs are executed")


class Launcher:
    """Executes jobs somewhere; this one has their commands printed."""

    jobs = 0  # how many run at a time
    takes = 0  # most that it is given at a time, if not `jobs`; such jobs outlive this process
    pause = 0.5  # seconds between two looks at the jobs
    environment: dict[str, str | None] = {}  # variables of the jobs that differ from those of their machine

    def open(self, folder: pathlib.Path) -> None:
        """Prepares for submissions, with a folder for files of its own."""

    def submit(self, works: Sequence[Work]) -> list[str]:
        """Starts or queues jobs; returns an id of each."""
        raise NotImplementedError

    def alive(self, ids: Collection[str]) -> set[str]:
        """Returns those of the ids, including an earlier process's, whose jobs wait or run."""
        raise NotImplementedError

    def stop(self) -> None:
        """Lets the jobs that need this process save and end."""


def _package(name: str, launcher: str, extra: str) -> Any:
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")  # it would close all handlers of logging
    require(f"launcher={launcher}", name, extra)
    return importlib.import_module(name)


@contextlib.contextmanager
def _errors_to(path: pathlib.Path) -> Iterator[None]:
    """Lets processes that the body starts write to a file what submitit's answer Ctrl-C with: tracebacks."""
    terminal = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


@LAUNCHERS.register("local")
class Local(Launcher):
    """This host: several runs at a time, each in a process of its own (submitit).

    Args:
      jobs: runs at a time. Each uses all cores; with JAX_NUM_CPU_DEVICES=1 one, which may change last bits.
    """

    cluster, parameters = "local", {"timeout_min": 60 * 24 * 365}

    def __init__(self, *, jobs: PositiveInt = 2):
        self.jobs, self._submitit = jobs, _package("submitit", self.cluster, "cluster")
        self._running = dict[str, Any]()
        # submitit hides GPUs from jobs that have not asked for them.
        self.environment = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES")}

    def open(self, folder: pathlib.Path) -> None:
        folder.mkdir(exist_ok=True)
        self._errors = folder / "errors.log"
        # Each part of a run advances: how often it is requeued does not matter.
        self._executor = self._submitit.AutoExecutor(folder, cluster=self.cluster, slurm_max_num_timeout=10**6)
        self._executor.update_parameters(**self.parameters)

    def submit(self, works: Sequence[Work]) -> list[str]:
        try:
            with _errors_to(self._errors), self._executor.batch():
                jobs = [self._executor.submit(work) for work in works]
        except self._submitit.core.utils.FailedJobError as error:
            raise UserError(f"launcher={self.cluster}: {str(error).strip().splitlines()[-1]}") from error
        self._running |= {job.job_id: job for job in jobs}
        return [job.job_id for job in jobs]

    def alive(self, ids: Collection[str]) -> set[str]:  # a run that an earlier process has started holds its lock
        return {name for name in ids if name in self._running and not self._running[name].done()}

    def stop(self) -> None:
        for job in () if self.takes else self._running.values():
            job.cancel()


@LAUNCHERS.register("slurm")
class Slurm(Local):
    """Slurm: arrays of jobs, requeued at their time limit and when they are preempted (submitit).

    Other options of sbatch are read from its variables, such as SBATCH_PARTITION and SBATCH_ACCOUNT.

    Args:
      time: limit of a job, such as 20m, 2h, 1d; 90 seconds before it the run saves, and the job is requeued.
      array: jobs of an array that run at a time.
      gpus: GPUs of a job.
      cpus: CPUs of a job.
    """

    cluster, takes, pause = "slurm", 1000, 10.0  # Slurm's default of MaxArraySize is 1001

    def __init__(self, *, time: str = "1h", array: PositiveInt = 256, gpus: NonNegativeInt = 0, cpus: PositiveInt = 1):
        super().__init__(jobs=array)
        if not (time[:-1].isdecimal() and time[-1] in "mhd" and int(time[:-1])):
            raise UserError(f"launcher=slurm:time={time} is not a time limit; write 20m, 2h or 1d.")
        if shutil.which("sbatch") is None:
            raise UserError("launcher=slurm: there is no `sbatch` here; use a login node, or --launcher=local:jobs=2.")
        minutes = int(time[:-1]) * {"m": 1, "h": 60, "d": 1440}[time[-1]]
        self.parameters = {"timeout_min": minutes, "cpus_per_task": cpus, "slurm_array_parallelism": array}
        self.parameters |= {"gpus_per_node": gpus} if gpus else {}
        self.environment = {}

    def alive(self, ids: Collection[str]) -> set[str]:  # by squeue, which needs no accounting, as sacct does
        command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={getpass.getuser()}"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        except (OSError, subprocess.SubprocessError):  # asked again later
            return set(ids)
        return set(ids) & set(answer.split())


@LAUNCHERS.register("ray")
class Ray(Launcher):
    """Ray: tasks of a cluster that runs already; they end with this command, and the same one continues.

    Args:
      address: address of the cluster; auto: the one of this host.
      jobs: maximum number of tasks at a time.
      cpus: CPUs of a task.
      gpus: GPUs of a task.
    """

    def __init__(
        self, *, address: str = "auto", jobs: PositiveInt = 16, cpus: NonNegativeInt = 1, gpus: NonNegativeInt = 0
    ):
        self.jobs, self._address, self._ray = jobs, address, _package("ray", "ray", "ray")
        self._resources, self._tasks = {"num_cpus": cpus, "num_gpus": gpus}, dict[str, Any]()

    def open(self, folder: pathlib.Path) -> None:
        try:
            self._ray.init(address=self._address, log_to_driver=False, ignore_reinit_error=True)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise UserError(f"launcher=ray:address={self._address}: {reason}; `ray start` makes one.") from error

    def submit(self, works: Sequence[Work]) -> list[str]:
        task = self._ray.remote(max_retries=0, **self._resources)(Work.__call__)
        tasks = {reference.hex(): reference for reference in map(task.remote, works)}
        self._tasks |= tasks
        return list(tasks)

    def alive(self, ids: Collection[str]) -> set[str]:
        own = {name: self._tasks[name] for name in ids if name in self._tasks}
        return {name for name, task in own.items() if not self._ray.wait([task], timeout=0)[0]}
