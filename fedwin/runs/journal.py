"""Journal: records evaluations, checkpoints, times and divergence of a seed; the summary of a run's seeds."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fedwin import engine, multi_process
from fedwin.callbacks import RunCallbacks, scores
from fedwin.callbacks.protocol import read_outs_of
from fedwin.callbacks.scores import Summary
from fedwin.core import Mean
from fedwin.errors import UserError
from fedwin.files import digest_of
from fedwin.residence.rows import ClientTable
from fedwin.runs import signals
from fedwin.runs.checkpoint import Checkpoints, Extra
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import Line, MetricsLog
from fedwin.runs.schedule import Attendance
from fedwin.wrappers.accounting import Privacy

DIVERGENCE = "the loss is not finite; a smaller --client_lr or --clip_norm may help"


class DispatchOutcome(NamedTuple):
    """The results of a dispatch on the host, and its duration.

    Attributes:
      metrics: name -> Mean with leading axis [R_max], of vmapped seeds [R_max, seeds].
      evaluations: read-out -> metric -> values, likewise.
      flags: which of its rounds were evaluated, bool [R_max].
      rounds: how many it had, at most R_max.
      seconds: from taking examples and client rows to writing the rows back.
      compiling: how much of that was compilation.
    """

    metrics: Mapping[str, Mean]
    evaluations: Mapping[str, Mapping[str, np.ndarray]]
    flags: np.ndarray
    rounds: int
    seconds: float = 0.0
    compiling: float = 0.0


class ClientEvaluation(NamedTuple):
    """An evaluation of models on each client's own examples.

    Attributes:
      metrics: read-out -> name -> figure of the distribution over clients.
      table: contents of the file with a row per client.
    """

    metrics: dict[str, dict[str, float]]
    table: bytes


class Journal:
    """Writes evaluations to a MetricsLog and states to checkpoints; without them, it only keeps track.

    Args:
      attendance: counts clients, bytes and simulated seconds.
      rows: the seed's client table; needed with `checkpoints`.
      saved: `saved_extra` of the checkpoint that the seed resumes from, the counts that a fork continues, or None.
      privacy: the guarantee of a private run, or None.
      stop: whether the seed ends at the first divergence.

    Attributes:
      seconds: training time so far, compilation included.
      compile_seconds: how much of it was compilation.
      steady: rounds and seconds of the dispatches that compiled nothing.
      diverged_at: the round whose loss was not finite, or None.
      stopped_at: the round after which a callback stopped the seed, or None.
      loss: training loss of the last round that has one, NaN before; of a group, the mean over the seeds that train.
      latest: the newest evaluation of this process, [] before the first; of a group, those of the seeds that train.
      saved_round: round of the newest checkpoint that this process saved, or None.
    """

    def __init__(
        self,
        seed: int,
        attendance: Attendance,
        metrics_log: MetricsLog | None = None,
        checkpoints: Checkpoints | None = None,
        rows: ClientTable | None = None,
        *,
        saved: Extra | None = None,
        callbacks: RunCallbacks | None = None,
        privacy: Privacy | None = None,
        stop: bool = True,
    ):
        saved = saved or {}
        self.seed, self.metrics_log, self.checkpoints, self.rows = seed, metrics_log, checkpoints, rows
        self.attendance, self.loss = attendance, np.nan
        self.seconds, self.compile_seconds = saved.get("seconds", 0.0), saved.get("compile_seconds", 0.0)
        self.steady: tuple[int, float] = tuple(saved.get("steady", (0, 0.0)))
        self.diverged_at: int | None = saved.get("diverged_at")
        self.stopped_at: int | None = saved.get("stopped_at")
        self.callbacks, self.privacy, self.stop = callbacks, privacy, stop
        self.latest: list[Line] = []
        self.saved_round: int | None = None

    @property
    def end(self) -> int | None:
        """The last round of a seed that a callback stopped, or that diverged and `stop`; None for others."""
        return self.stopped_at or (self.diverged_at if self.stop else None)

    @property
    def ended(self) -> bool:
        """Whether the seed trains no further."""
        return self.end is not None

    def write_evaluation(
        self,
        after: int,
        values: Mapping[str, Mapping[str, Any]],
        train_loss: float | None,
        clients: ClientEvaluation | None = None,
    ) -> bool:
        """Writes one evaluation and calls the callbacks; returns whether one of them stops the seed.

        Args:
          after: completed rounds.
          values: read-out -> metric -> value.
          train_loss: mean loss of the round, None before the first one, for an empty cohort, and of an algorithm whose
            clients report none.
        """
        line: Line = {"seed": self.seed, "round": after}
        if clients is not None:
            values = {name: {**metrics, **clients.metrics.get(name, {})} for name, metrics in values.items()}
        line |= {name: {metric: float(v) for metric, v in metrics.items()} for name, metrics in values.items()}
        down, up = self.attendance.bytes(after)
        line |= {"train_loss": train_loss, "bytes_down": down, "bytes_up": up, "seconds": round(self.seconds, 3)}
        line |= self.attendance.evaluated(after)
        if clients is not None:
            line["clients"] = digest_of(clients.table)
            if self.metrics_log is not None:
                self.metrics_log.write_clients(self.seed, after, clients.table)
        if self.privacy is not None:
            line["epsilon"] = self.privacy.epsilon(after)
        self.latest = [line]
        if self.metrics_log is not None:
            self.metrics_log.write(line)
        return self.callbacks is not None and self.callbacks.evaluated(line)

    def record(self, completed: int, outcome: DispatchOutcome, clients: ClientEvaluation | None = None) -> None:
        """Writes the evaluations of a dispatch and adds its time; those after a divergence are left out if `stop`.

        A callback that may stop the seed sees the last round of a dispatch: dispatches end at evaluations then.

        Args:
          completed: rounds before the dispatch.
          clients: evaluation of the last round on each client's own examples, or None.
        """
        metrics, evaluations, flags, count, seconds, compiling = outcome
        self.seconds, self.compile_seconds = self.seconds + seconds, self.compile_seconds + compiling
        if not compiling:
            self.steady = (self.steady[0] + count, self.steady[1] + seconds)
        with np.errstate(invalid="ignore"):  # an empty cohort's is 0 / 0
            loss = metrics["loss"].value if "loss" in metrics else np.full(len(flags), np.nan)
        empty = self.attendance.is_empty(completed, count)
        for r in range(count):
            after = completed + r + 1
            values = jax.tree.map(lambda of_rounds, r=r: of_rounds[r], evaluations) if flags[r] else None
            unknown = empty[r] or "loss" not in metrics
            finite = unknown or np.isfinite(loss[r])
            diverged = not finite or (values is not None and not np.isfinite(values["model"]["loss"]))
            if diverged and self.diverged_at is None:
                self.diverged_at = after
            stopped = values is not None and self.write_evaluation(
                after, values, None if unknown else float(loss[r]), clients if r == count - 1 else None
            )
            if diverged and self.stop:
                break
            if stopped:
                self.stopped_at = after
                break
        self.attendance.bytes(self.end or completed + count)  # known from here on
        if not empty.all():
            self.loss = float(loss[:count][~empty][-1])

    def save(self, completed: int, run: engine.RunState) -> None:
        """Saves a checkpoint after `completed` rounds, unless it has; its evaluations are written to disk first."""
        if self.checkpoints is None or self.rows is None or self.saved_round == completed:
            return
        self.flush()
        state = self.rows.checkpoint(multi_process.all_gather(run))
        self.checkpoints.save(completed, state, self.saved_extra(completed))
        self.rows.reclaim()
        self.saved_round = completed
        # Several processes end together after a dispatch: if one ended now, the others would wait for it.
        if (watch := signals.active()) is not None and multi_process.count() == 1:
            watch.mark_saved()

    def save_stopped(self, completed: int, run: engine.RunState) -> None:
        """Saves a checkpoint if a callback stopped the seed after `completed` rounds."""
        if self.stopped_at == completed:
            self.save(completed, run)

    def saved_extra(self, completed: int) -> Extra:
        """Returns the JSON data that a checkpoint after `completed` rounds holds of the seed."""
        extra: Extra = {
            "seed": self.seed,
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
            "steady": list(self.steady),
            "diverged_at": self.diverged_at,
            "stopped_at": self.stopped_at,
        }
        return extra | self.attendance.state(completed)

    def mark_unsaved(self) -> None:
        """Notes that rounds have been computed since the last checkpoint."""
        if self.checkpoints is not None and (watch := signals.active()) is not None:
            watch.mark_unsaved()

    def end_if_interrupted(self, completed: int, run: engine.RunState) -> None:
        """Saves the state after completed rounds and raises Interrupted if any process received Ctrl-C or SIGTERM."""
        watch = signals.active()
        number = int(multi_process.all_gather_integers(0 if watch is None else watch.requested or 0).max())
        if watch is None or not number or self.checkpoints is None:
            return
        watch.request(number)
        if self.ended:  # a diverged state is not one to resume from
            raise signals.Interrupted(number, f"interrupted; the same {watch.caller} resumes.")
        self.save(completed, run)
        raise signals.Interrupted(
            number, f"interrupted; saved after round {completed}, the same {watch.caller} resumes there."
        )

    def finish(self) -> None:
        """Flushes the evaluations and notes that nothing is left to save."""
        self.flush()
        self.rows = None  # the next seed needs the memory
        if (watch := signals.active()) is not None:
            watch.mark_saved()

    def flush(self) -> None:
        """Flushes written evaluations to disk."""
        if self.metrics_log is not None:
            self.metrics_log.flush()

    def progress_note(self, completed: int) -> str:
        """Returns training loss and the latest test accuracies (or R^2), means over seeds, for the progress line.

        Accuracies of a round other than the last of the `completed` ones are shown with that round.
        """
        if not self.latest:
            return f"train loss {self.loss:.4f}"
        first, *_ = self.latest
        names = [name for name, value in first.items() if isinstance(value, dict)]
        metric = scores.main_metric(first[names[0]])
        means = ", ".join(f"{name} {np.mean([line[name][metric] for line in self.latest]):.4f}" for name in names)
        where = "" if first["round"] == completed else f" after round {first['round']}"
        return f"train loss {self.loss:.4f}  {scores.title_of(metric)}{where}: {means}"


def _means(lines: list[Line]) -> dict[str, dict[str, float]]:
    """Returns read-out -> metric -> mean over evaluations; not every one has the figures of clients."""
    evaluations = [read_outs_of(line) for line in lines]
    return {
        name: {
            metric: float(np.mean([line[name][metric] for line in evaluations if metric in line[name]]))
            for metric in dict.fromkeys(metric for line in evaluations for metric in line[name])
        }
        for name in evaluations[0]
    }


def _seed_summary(config: Config, seed: int, journal: Journal, lines: list[Line]) -> Summary:
    own = [line for line in lines if line["seed"] == seed]
    if not own:
        raise UserError(f"metrics.jsonl has no line of seed {seed}; run again in another --out_dir.")
    first, end = own[0]["round"], own[-1]["round"]
    counted = max(config.final_evals, 1)
    # The model that it starts from, untrained or a fork's parent's, counts in no mean, however short the run.
    ended = config.num_rounds if journal.stopped_at is None else end
    last = [line for line in own if line["round"] > max(ended - counted, first)]
    # A seed that was stopped early was evaluated every --eval_every rounds; the mean covers those of as many rounds.
    complete = journal.stopped_at is not None or (
        len({line["round"] for line in last}) >= min(counted, config.num_rounds - first)
    )
    if journal.diverged_at is None and not complete:
        raise UserError(
            f"metrics.jsonl has {len(last)} of the last {counted} evaluations of seed {seed}; run again in another "
            f"--out_dir."
        )
    rounds, seconds = journal.steady
    return {
        "seed": seed,  # an integer, even in summary.json, whose keys are texts
        "final_round": end,
        "diverged_at": journal.diverged_at,
        "divergence": None if journal.diverged_at is None else DIVERGENCE,
        **({} if journal.stopped_at is None else {"stopped_at": journal.stopped_at}),
        **({} if (empty := journal.attendance.empty_rounds) is None else {"empty_rounds": empty}),
        "wall_seconds": journal.seconds,
        **{name: own[-1][name] for name in ("simulated_seconds",) if name in own[-1]},
        "compile_seconds": journal.compile_seconds,
        # Without dispatches that compiled; a run of one dispatch has no rate.
        "rounds_per_second": rounds / seconds if seconds else None,
        "evaluations": len(last),
        **({"client_evaluations": of_clients} if (of_clients := sum("clients" in line for line in last)) else {}),
        # A diverged seed has no mean of its last rounds: the last finite evaluation would be too favorable.
        "last": _means(last) if journal.diverged_at is None else None,
        "final": read_outs_of(own[-1]),
    }


def _over_seeds(seeds: dict[int, Summary]) -> Summary:
    """Returns read-out -> metric -> mean, standard deviation and final value over the seeds that did not diverge."""
    converged = [seed for seed in seeds.values() if seed["last"] is not None]
    # Not every seed has the figures of clients: one that was stopped early may have ended between their evaluations.
    found = [seed["last"] for seed in converged] or [next(iter(seeds.values()))["final"]]
    shape = {name: dict.fromkeys(metric for means in found for metric in means[name]) for name in found[0]}

    def spread(name, metric):
        values, final = (
            [seed[kind][name][metric] for seed in converged if metric in seed[kind][name]] for kind in ("last", "final")
        )
        return {
            "mean": float(np.mean(values)) if values else None,
            "std": float(np.std(values, ddof=1)) if len(values) > 1 else None,
            "final": float(np.mean(final)) if final else None,
            "seeds": len(values),
            "of_seeds": len(seeds),
        }

    return {name: {metric: spread(name, metric) for metric in metrics} for name, metrics in shape.items()}


def summarize(
    config: Config, journals: Mapping[int, Journal], lines: list[Line], fingerprint: str, traces: int
) -> Summary:
    """Returns the summary of a run.

    Args:
      journals: seed -> its journal after training.
      traces: number of dispatch programs that were compiled.

    Returns:
      Per seed and over seeds: the mean of the evaluations of the last rounds of every read-out, without the first of
      the run; their number; the final evaluation; times. A mean is over `evaluations` in `last_rounds`, one of clients'
      figures over `client_evaluations` of them; that of a seed that was stopped early covers the evaluations of as many
      rounds before `stopped_at`. Diverged seeds have no mean and are left out of those over seeds, which give the
      number of seeds that they cover.

    Raises:
      UserError: evaluations are missing.
    """
    seeds = {seed: _seed_summary(config, seed, journal, lines) for seed, journal in journals.items()}
    return {
        "algorithm": config.algorithm,
        "num_rounds": config.num_rounds,
        "last_rounds": min(max(config.final_evals, 1), config.num_rounds - min(line["round"] for line in lines)),
        "evaluations": max((seed["evaluations"] for seed in seeds.values() if seed["last"] is not None), default=0),
        "fingerprint": fingerprint,
        "traces": traces,
        "over_seeds": _over_seeds(seeds),
        "seeds": seeds,
    }
