"""Starts the processes of a benchmark on first use, and finds the contestants that are installed."""

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Sequence

import fedwin

from .cases import Case
from .measure import TimedTask
from .worker import PeerFailed, Worker

PEERS = pathlib.Path(__file__).resolve().parent
ROOT = pathlib.Path(fedwin.__file__).resolve().parents[1]
# A contestant may run in an environment without fedwin and this package: its module is loaded from the folder.
START = """
import runpy, sys, types
peers = sys.modules["peers"] = types.ModuleType("peers")
peers.__path__ = [sys.argv.pop(1)]
runpy.run_module("peers." + sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def command(python: str, module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Returns (command, environment) that start the process of a contestant.

    Args:
      python: interpreter.
      module: of this package.
      *arguments: of the module.
    """
    # Other interpreters must not import the packages of this environment.
    environment = {"PYTHONPATH": str(ROOT)} if python == sys.executable else {}
    return [python, "-c", START, str(PEERS), module, *arguments], environment


class Crew:
    """The workers of one benchmark, started on first use.

    Args:
      peers: of fedjax, torch, pfl, flower, those to run.
      python_torch: interpreter for torch, pfl and flower.
      cores: CPU devices of fedwin's sharded strategy.
      say: called with each line of progress.
      imports: the user's own code, for fedwin's workers.
    """

    def __init__(
        self,
        peers: list[str],
        python_torch: str,
        cores: int,
        say: Callable[[str], None],
        imports: Sequence[str] = (),
    ):
        self.peers, self.python_torch, self.cores, self.say, self.imports = peers, python_torch, cores, say, imports
        self._workers: dict[str, Worker | None] = {}
        self.versions: dict[str, str] = {}
        self.gpu: str | None = None

    def _start(self, name: str, python: str, module: str, *arguments: str) -> Worker | None:
        if name not in self._workers:
            worker = Worker(*command(python, module, *arguments))
            try:
                about = worker.ask()
            except PeerFailed as error:
                self.say(f"{name}: not available ({error})")
                worker.close()
                self._workers[name] = None
            else:
                self.say(f"{name}: {about['version']}, {about.get('backend', 'cpu')}")
                self.versions[name] = about["version"]
                self._workers[name] = worker
                if name == "fedwin gpu":
                    self.gpu = about["device"]
        return self._workers[name]

    def fedwin(self, devices: int = 0, alone: str = "") -> Worker:
        """Returns fedwin's worker with so many CPU devices (0 = one per core); `alone` names one with one task only.

        Args:
          devices: of the CPU; 0: one per core.
          alone: name of a worker with a single task.
        """
        devices = devices or self.cores
        label = f"fedwin, {devices} CPU device(s)" + (f", {alone}" if alone else "")
        worker = self._start(label, sys.executable, "fedwin_peer", "cpu", str(devices), *self.imports)
        if worker is None:
            raise PeerFailed("fedwin itself did not start")
        return worker

    def look_for_gpu(self) -> None:
        """Starts fedwin on jax's default backend and keeps it if that is an accelerator."""
        worker = self._start("fedwin gpu", sys.executable, "fedwin_peer", "default", "1", *self.imports)
        if worker is None or worker.ask()["backend"] == "cpu":
            if worker is not None:
                worker.close()
            self._workers["fedwin gpu"], self.gpu = None, None

    def peer(self, name: str) -> Worker | None:
        """Returns a contestant's worker; None if it is not requested or not installed."""
        if name.split()[0] not in self.peers:
            return None
        if name == "fedjax":
            return self._start(name, sys.executable, "fedjax_peer", "cpu")
        if name == "fedjax gpu":
            return self._start(name, sys.executable, "fedjax_peer") if self.gpu else None
        return self._start(name, self.python_torch, f"{name}_peer")

    def contestants(self, case: Case) -> list[TimedTask]:
        """Returns every way to train this case on this machine; 'fedwin default' comes first."""
        request = {"case": dataclasses.asdict(case)}
        fedwin = lambda label, worker, strategy: TimedTask(label, worker, request | {"strategy": strategy})
        tasks = [
            TimedTask("fedwin default", self.fedwin(), request | {"strategy": "default", "flops": True}),
            fedwin("fedwin chunked:k=1", self.fedwin(1), "chunked:k=1"),
            fedwin("fedwin vmapped", self.fedwin(1), "vmapped"),
        ]
        for name in ("fedjax", "torch", "pfl", "flower", "fedjax gpu"):
            # pfl and flower end every epoch with a partial batch: without one the work is the same.
            if (name not in ("pfl", "flower") or case.even) and (worker := self.peer(name)) is not None:
                tasks.append(TimedTask(name, worker, request))
                if name == "torch" and len(case.shape) == 3:
                    tasks.append(TimedTask("torch channels-last", worker, request | {"channels_last": True}))
        if self.gpu:
            tasks += [fedwin(f"fedwin {s} gpu", self._workers["fedwin gpu"], s) for s in ("vmapped", "chunked:k=1")]
        return tasks

    def close(self) -> None:
        """Ends all workers."""
        for worker in self._workers.values():
            if worker is not None:
                worker.close()
