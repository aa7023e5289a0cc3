"""Experiment trackers (--track): W&B, trackio and MLflow, and how a run sends its evaluations to them."""

import contextvars
import dataclasses
import functools
import importlib
import math
import os
import pathlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedwin.callbacks.protocol import Line
from fedwin.errors import UserError, describe, require
from fedwin.registry import Registry

# Builders have the signature builder(*, option=...) -> Tracker.
TRACKERS = Registry("tracker", rule="where evaluations are sent", builds=Callable)

# Most characters of a parameter's value in MLflow; a request may have 100 parameters and 1,000 metrics.
MLFLOW_LENGTH = 6000
# Seconds that a tracker may take for a call, the import of its package and its own attempts to connect included.
LIMIT = 120.0
# Fields of an evaluation that are not numbers to plot.
NOT_SCALARS = ("seed", "round", "cohort_sizes", "clients")
# Fields of a seed's summary that trackers receive, besides the means of its last evaluations.
OF_SUMMARY = (
    "final_round",
    "diverged_at",
    "stopped_at",
    "wall_seconds",
    "simulated_seconds",
    "rounds_per_second",
    "evaluations",
)


class TrackedSeed(NamedTuple):
    """Identity of one seed's run, passed to a Tracker.

    Attributes:
      name: name of the tracker's run, the same when the seed resumes: directory, seed and start of the fingerprint.
      group: name that the seeds of a run share, that of its directory.
      config: name -> value of all flags, the fingerprint and the seed.
    """

    name: str
    group: str
    config: Mapping[str, Any]


class TrackedRun(NamedTuple):
    """A tracker's run of one seed; its functions may raise.

    Attributes:
      log: (completed rounds, name -> value such as `model/accuracy`) -> None, sends an evaluation.
      finish: (name -> value of the seed's summary; {} if it has not finished) -> None, sends it and closes the run.
    """

    log: Callable[[int, Mapping[str, float]], object]
    finish: Callable[[Mapping[str, float]], object]


# Opens the tracker's run of a seed, or continues it if the service has one of this name.
Tracker = Callable[[TrackedSeed], TrackedRun]


@TRACKERS.register("wandb")
def wandb(*, project: str = "fedwin", entity: str = "", mode: str = "") -> Tracker:
    """Weights & Biases: one run per seed, in a group with the name of the run's directory.

    Args:
      project: name of the project.
      entity: user or team; empty: the account's default.
      mode: online, offline or disabled; empty: as in WANDB_MODE.

    Source: https://docs.wandb.ai.

    Example:
      >>> TRACKERS.options("wandb")["project"]
      'fedwin'
    """
    require("track=wandb", "wandb", "wandb")

    def start(seed: TrackedSeed) -> TrackedRun:
        run = importlib.import_module("wandb").init(
            project=project,
            entity=entity or None,
            mode=mode or None,
            name=seed.name,
            id=seed.name,
            group=seed.group,
            config=dict(seed.config),
            resume="allow",
            reinit="create_new",  # vmapped seeds are open at the same time
        )

        def finish(summary: Mapping[str, float]) -> None:
            run.summary.update(dict(summary))
            run.finish()

        return TrackedRun(lambda round, metrics: run.log(dict(metrics), step=round), finish)

    return start


@TRACKERS.register("trackio")
def trackio(*, project: str = "fedwin", space: str = "") -> Tracker:
    """Trackio: one run per seed in a local database (TRACKIO_DIR), or in a Hugging Face Space.

    Args:
      project: name of the project.
      space: USER/NAME of the Space; empty: local, without network.

    Source: https://huggingface.co/docs/trackio.

    Example:
      >>> TRACKERS.options("trackio")["project"]
      'fedwin'
    """
    require("track=trackio", "trackio", "trackio")

    def start(seed: TrackedSeed) -> TrackedRun:
        # trackio ends the open run of the context that it is called in: every seed has its own.
        context, init = contextvars.copy_context(), importlib.import_module("trackio").init
        arguments: dict[str, Any] = {"space_id": space} if space else {}
        arguments |= {"name": seed.name, "group": seed.group, "config": dict(seed.config), "resume": "allow"}
        run = context.run(lambda: init(project=project, **arguments))
        log = lambda round, metrics: context.run(run.log, dict(metrics), step=round)

        def finish(summary: Mapping[str, float]) -> None:
            if summary:  # trackio has no summaries
                log(int(summary["summary/final_round"]), summary)
            context.run(run.finish)

        return TrackedRun(log, finish)

    return start


@TRACKERS.register("mlflow")
def mlflow(*, experiment: str = "fedwin", uri: str = "") -> Tracker:
    """MLflow: one run per seed in an experiment.

    Args:
      experiment: name of the experiment.
      uri: tracking server's URI, sqlite:///FILE or a folder; empty: MLFLOW_TRACKING_URI, or MLflow's default.

    Source: https://mlflow.org/docs/latest/ml/tracking.

    Example:
      >>> TRACKERS.options("mlflow")["experiment"]
      'fedwin'
    """
    require("track=mlflow", "mlflow", "mlflow")

    def start(seed: TrackedSeed) -> TrackedRun:
        if uri and "://" not in uri:  # a folder; MLflow asks for this consent
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        entities = importlib.import_module("mlflow.entities")
        client = importlib.import_module("mlflow").MlflowClient(tracking_uri=uri or None)
        known = client.get_experiment_by_name(experiment)
        number = client.create_experiment(experiment) if known is None else known.experiment_id
        if found := client.search_runs([number], f"attributes.run_name = '{seed.name}'"):
            run = found[0].info.run_id
            client.update_run(run, status="RUNNING")
        else:
            run = client.create_run(number, run_name=seed.name, tags={"group": seed.group}).info.run_id
            params = [entities.Param(name, str(value)[:MLFLOW_LENGTH]) for name, value in seed.config.items()]
            client.log_batch(run, params=params)

        def log(round: int, metrics: Mapping[str, float]) -> None:
            now = int(1000 * time.time())
            client.log_batch(run, metrics=[entities.Metric(*item, now, round) for item in metrics.items()])

        def finish(summary: Mapping[str, float]) -> None:
            if summary:
                log(int(summary["summary/final_round"]), summary)
            client.set_terminated(run, "FINISHED" if summary else "KILLED")

        return TrackedRun(log, finish)

    return start


def scalars(line: Line) -> Iterator[tuple[str, float]]:
    """Yields (name, number) of an evaluation, such as `model/accuracy`, without NaN and inf, which can't be plotted."""
    for key, value in line.items():
        numbers = ((f"{key}/{m}", v) for m, v in value.items()) if isinstance(value, dict) else ((key, value),)
        for name, number in numbers if key not in NOT_SCALARS else ():
            if number is not None and math.isfinite(float(number)):
                yield name, float(number)


def summary_values(summary: Mapping[str, Any]) -> dict[str, float]:
    """Returns name -> number of a seed's summary, as in summary.json: means, rounds, seconds."""
    last = {f"summary/{name}": value for name, value in scalars(summary["last"] or {})}
    return last | {f"summary/{name}": float(summary[name]) for name in OF_SUMMARY if summary.get(name) is not None}


def build_all(choices: Sequence[str]) -> dict[str, Tracker]:
    """Builds the trackers of --track, choice -> Tracker; UserError if one is wrong, given twice or not installed."""
    trackers: dict[str, Tracker] = {}
    for text in choices:
        name = str(TRACKERS.check(text))
        if name in trackers:
            raise UserError(f"track={text} is given twice; keep one.")
        trackers[name] = TRACKERS.build(text)
    return trackers


@dataclasses.dataclass
class Tracking:
    """Sends the evaluations and summaries of a run's seeds to trackers.

    A tracker that raises or hangs is dropped with a warning; it never changes or ends the run.

    Attributes:
      trackers: choice -> Tracker.
      directory: directory of the run.
      config: name -> value that the trackers' runs receive.
    """

    trackers: dict[str, Tracker]
    directory: pathlib.Path
    config: Mapping[str, Any]
    _runs: dict[tuple[str, int], TrackedRun] = dataclasses.field(default_factory=dict)

    def line(self, line: Line) -> None:
        """Sends an evaluation."""
        seed, numbers = line["seed"], dict(scalars(line))
        self._with_all(lambda choice: self._run(choice, seed).log(line["round"], numbers))

    def summary(self, summary: Mapping[str, Any], again: bool = False) -> None:
        """Sends the summaries of all seeds, `again` those of seeds tracked in this process, and closes their runs."""
        for seed, of_seed in summary.get("seeds", {}).items():  # a process that does not write has none
            self._finish(seed, summary_values(of_seed), opens=not again)

    def close(self) -> None:
        """Closes the runs that are still open, as unfinished."""
        for seed in {seed for _, seed in self._runs}:
            self._finish(seed, {})

    def _run(self, choice: str, seed: int) -> TrackedRun:
        """Returns the tracker's run of a seed, which the first call opens."""
        if (choice, seed) not in self._runs:
            group = self.directory.absolute().name
            name = f"{group}-seed{seed}-{self.config['fingerprint'][:8]}"
            about = TrackedSeed(name, group, dict(self.config) | {"seed": seed})
            self._runs[choice, seed] = self.trackers[choice](about)
        return self._runs[choice, seed]

    def _finish(self, seed: int, values: Mapping[str, float], opens: bool = False) -> None:
        def finish(choice: str) -> None:
            if opens or (choice, seed) in self._runs:
                self._run(choice, seed).finish(values)
                del self._runs[choice, seed]

        self._with_all(finish)

    def _with_all(self, action: Callable[[str], object]) -> None:
        for choice in list(self.trackers):
            if (error := _error_of(functools.partial(action, choice))) is not None:
                del self.trackers[choice]
                reason = describe(error).rstrip(".")
                warnings.warn(f"track={choice}: {reason}. The run continues without this tracker.", stacklevel=2)


def _error_of(action: Callable[[], object]) -> BaseException | None:
    """Runs an action in a thread, which is left behind if it takes longer than LIMIT; returns what it raised."""
    raised: list[BaseException] = [TimeoutError(f"no answer within {LIMIT:g} seconds")]

    def call():
        try:
            action()
            raised.clear()
        except (Exception, SystemExit) as error:
            raised[:] = [error]

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return next(iter(raised), None)
