"""Runs each measurement in a separate process with a time limit."""

import dataclasses
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import jax

from ..peers.crew import command
from ..peers.measure import Effort, TaskTiming, TimedTask, interleaved
from ..peers.worker import PeerFailed, Worker
from .pieces import Piece, Record

# Time limit of a request in seconds.
LONGEST = 240.0
# Smallest time limit in seconds.
GRACE = 10.0
# Sides of the matrices whose product measures the peak performance.
PRODUCT, TINY_PRODUCT = 8192, 256
JAX_PRECISION = {"tf32": "default", "float32": "highest"}
# Several processes share the device; by default the first one would reserve three quarters of its memory.
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
# (label, contestant, request)
Job = tuple[str, str, dict[str, Any]]


class TimedWorker(Worker):
    """A worker that is killed if it exceeds a time limit.

    Args:
      command: as of Worker.
      environment: as of Worker.
      left: returns the remaining seconds of the time budget.
    """

    def __init__(self, command: list[str], environment: dict[str, str], left: Callable[[], float]):
        super().__init__(command, environment)
        self._left = left
        self.out_of_time = False

    def ask(self, **request) -> dict:
        """Sends a request and waits for its answer; raises PeerFailed, also after the time limit."""
        whole = max(self._left(), GRACE)
        seconds = min(whole, LONGEST)
        rung = threading.Event()

        def ring():
            rung.set()
            self._process.kill()

        timer = threading.Timer(seconds, ring)
        timer.daemon = True
        timer.start()
        try:
            return super().ask(**request)
        except PeerFailed:
            if not rung.is_set():
                raise
            self.out_of_time = whole < LONGEST
            raise PeerFailed(f"no answer within {seconds:.0f} s") from None
        finally:
            timer.cancel()


@dataclasses.dataclass
class Team:
    """Starts and ends the processes of a group of pieces.

    Attributes:
      platform: 'cpu', or 'default' for jax's choice.
      tiny: whether cohorts are tiny.
      python_torch: interpreter that has torch.
      imports: the user's own code, for fedwin.
      effort: how long to measure.
      left: returns the remaining seconds of the time budget.
      say: called with each line of progress.
      alone: whether the device serves one process at a time, as a TPU does; then pieces do not alternate.
    """

    platform: str
    tiny: bool
    python_torch: str
    imports: list[str]
    effort: Effort
    left: Callable[[], float]
    say: Callable[[str], None]
    alone: bool = False

    def _start(self, who: str, precision: str) -> TimedWorker:
        python, module, arguments = sys.executable, "accelerated_peer", [self.platform, precision, *self.imports]
        if who == "fedjax":
            module, arguments = "fedjax_peer", [self.platform, JAX_PRECISION.get(precision, "highest")]
        elif who == "torch":
            python, module, arguments = self.python_torch, "torch_peer", []
        started, environment = command(python, module, *arguments)
        cache = jax.config.values["jax_compilation_cache_dir"]
        environment |= SHARED | ({"JAX_COMPILATION_CACHE_DIR": cache} if cache else {})
        return TimedWorker(started, environment, self.left)

    def about(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """Returns contestant -> its description, or {'missing': reason} if it did not start."""
        results: dict[str, dict[str, Any]] = {}
        for who in ("fedwin", *names):  # one after the other: a TPU serves one process at a time
            worker = self._start(who, "float32")
            try:
                results[who] = worker.ask()
            except PeerFailed as error:
                results[who] = {"missing": str(error)}
            worker.close()
        if "torch" in results and not results["torch"].get("cuda", True) and results["fedwin"].get("backend") != "cpu":
            results["torch"] = {"missing": f"{results['torch']['version']} sees no GPU"}
        return results

    def measure(self, pieces: list[Piece], missing: dict[str, str]) -> dict[Piece, Record]:
        """Measures pieces of one case and precision alternately, together with a matrix product.

        Args:
          pieces: of a group.
          missing: unavailable contestant -> reason.

        Returns:
          piece -> figures, or {'failed': reason}; pieces that ran out of time are left out.
        """
        results: dict[Piece, Record] = {p: {"failed": missing[p.who]} for p in pieces if p.who in missing}
        measurable = [piece for piece in pieces if piece not in results]
        if not measurable:
            return results
        case, precision = measurable[0].case, measurable[0].precision
        self.say(f"{case.name}, {case}, {precision}")
        product = {"kind": "product", "size": TINY_PRODUCT if self.tiny else PRODUCT, "case": dataclasses.asdict(case)}
        jobs = [("product", "fedwin", product), *((p.label, p.who, p.request | self._device(p)) for p in measurable)]
        timings: dict[str, TaskTiming] = {}
        failed: dict[str, str] = {}
        late: set[str] = set()
        for some in [[job] for job in jobs] if self.alone else [jobs]:
            timings |= self._time_jobs(some, precision, failed, late)
        peak = timings.get("product")
        for piece in measurable:
            if piece.label in timings:
                results[piece] = figures(piece, timings[piece.label], peak)
            elif piece.label not in late:
                results[piece] = {"failed": failed[piece.label]}
        return results

    def _time_jobs(
        self, jobs: list[Job], precision: str, failed: dict[str, str], late: set[str]
    ) -> dict[str, TaskTiming]:
        """Times jobs alternately; adds label -> reason to `failed`, and labels that ran out of time to `late`."""
        workers: dict[str, TimedWorker] = {}
        try:
            for label, who, _ in jobs:  # they start side by side
                workers[label] = self._start(who, precision)
            tasks = [TimedTask(label, workers[label], request) for label, _, request in jobs]
            return interleaved(tasks, self.effort, self.say, failed)
        finally:
            late |= {label for label, worker in workers.items() if worker.out_of_time}
            with futures.ThreadPoolExecutor(len(jobs)) as together:  # each waits for its process to end
                list(together.map(TimedWorker.close, workers.values()))

    def _device(self, piece: Piece) -> Record:
        return {"device": "cpu" if self.platform == "cpu" else "cuda"} if piece.who == "torch" else {}


def figures(piece: Piece, timing: TaskTiming, peak: TaskTiming | None) -> Record:
    """Returns the record of a piece.

    Args:
      piece: what was measured.
      timing: of its rounds; a round of several seeds is one of each.
      peak: Timing of the matrix product; None: it failed.
    """
    record = timing.summary() | {name: timing.facts.get(name) for name in ("parameters", "device_peak_bytes")}
    record |= {name: timing.facts.get(name) for name in ("traces", "compiled_later")}
    if peak is None:
        return record
    product = peak.facts["flops"] / min(peak.seconds)
    done = piece.seeds * peak.facts["round_flops"] / timing.median
    return record | {
        "flops_per_round": peak.facts["round_flops"],
        "flops_per_second": done,
        "product_flops_per_second": product,
        "of_peak": done / product,
    }
