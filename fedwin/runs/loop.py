"""The loop over dispatches: cohorts in, evaluations out, checkpoints in between."""

import dataclasses
import sys
import time
from typing import Any, Callable

import jax
import numpy as np

from fedwin import engine
from fedwin.data.federation import Federation
from fedwin.engine import sampling
from fedwin.engine.strategy import Strategy
from fedwin.residence.stream import Stream
from fedwin.residence.tables import HostTable, saved_form
from fedwin.runs import checkpoint
from fedwin.runs.logbook import Logbook


@dataclasses.dataclass(frozen=True)
class Schedule:
    """When what happens.

    num_rounds: T; clients_per_round: |S|; eval_every: rounds between evaluations; final_evals: the last N rounds are all
    evaluated; checkpoint_every: rounds between checkpoints (0 = only the first and the last); rounds_per_dispatch: the most rounds
    that one dispatch may hold; stop_on_divergence: end at the first NaN or inf.
    """

    num_rounds: int
    clients_per_round: int
    eval_every: int
    final_evals: int
    checkpoint_every: int
    rounds_per_dispatch: int = 50
    stop_on_divergence: bool = True

    def evaluated(self, completed: int) -> bool:
        """Whether the model after `completed` rounds is evaluated."""
        return (
            completed % self.eval_every == 0
            or completed > self.num_rounds - self.final_evals
            or completed == self.num_rounds
        )

    def checkpointed(self, completed: int) -> bool:
        return completed == self.num_rounds or (self.checkpoint_every > 0 and completed % self.checkpoint_every == 0)

    def dispatch_end(self, completed: int, wish: int) -> int:
        """Returns where the dispatch that starts after `completed` rounds ends, at most `wish` rounds on.

        Dispatches end on multiples of rounds_per_dispatch too: what a dispatch is padded to then depends on the round
        alone, and a resumed run computes the same bits.
        """
        block = self.rounds_per_dispatch
        ends = [self.num_rounds, completed + wish, (completed // block + 1) * block]
        if self.checkpoint_every:
            ends.append((completed // self.checkpoint_every + 1) * self.checkpoint_every)
        return min(ends)


@dataclasses.dataclass
class Result:
    """What became of one seed: final RunState, evaluations, the round that diverged (or None), seconds of training."""

    run: engine.RunState
    lines: list[dict[str, Any]]
    diverged_at: int | None
    seconds: float
    dispatches: int


class Progress:
    """A bar with rounds per second and ETA on a terminal, a plain line every few seconds elsewhere."""

    def __init__(self, label: str, total: int, done: int):
        self.label, self.total, self.started, self.first = label, total, time.monotonic(), done
        self.spoken = self.started
        # Seconds between two signs of life: who looks at a bar wants more of them.
        self.patience = 2.0 if sys.stderr.isatty() else 20.0
        self.bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, initial=done, desc=label, unit="round", dynamic_ncols=True)

    def update(self, done: int, note: str) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(note, refresh=False)
            self.bar.update(done - self.bar.n)
            return
        now = time.monotonic()
        if now - self.spoken > 5 or done == self.total:
            self.spoken = now
            rate = (done - self.first) / max(now - self.started, 1e-9)
            left = (self.total - done) / max(rate, 1e-9)
            print(
                f"{self.label}: round {done}/{self.total}  {rate:.1f} rounds/s  {left:.0f} s left  {note}",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class Cohorts:
    """Host side of a dispatch: who takes part, padded as the strategy asks."""

    def __init__(self, federation: Federation, schedule: Schedule, strategy: Strategy, seed: int):
        self.federation, self.schedule, self.seed = federation, schedule, seed
        self.width = strategy.multiple(schedule.clients_per_round)

    def block(self, completed: int) -> tuple[np.ndarray, int]:
        """Returns (ids int32 [R_max, width], first round) of the dispatch block that round `completed` lies in."""
        length = self.schedule.rounds_per_dispatch
        first = completed // length * length
        count = min(length, self.schedule.num_rounds - first)
        drawn = sampling.cohorts(self.seed, first, count, self.federation.num_clients, self.schedule.clients_per_round)
        ids = np.full((length, self.width), -1, np.int32)
        ids[:count, : drawn.shape[1]] = drawn
        return ids, first

    def ids(self, completed: int, end: int) -> tuple[np.ndarray, int]:
        """Returns (ids [R_max, width], n_max) of rounds completed .. end - 1; unused rows are -1."""
        ids, first = self.block(completed)
        mine = np.full_like(ids, -1)
        mine[: end - completed] = ids[completed - first : end - first]
        # The bucket is that of the whole block, so that it does not depend on where a dispatch was cut.
        return mine, self.federation.bucket(ids)


def train(
    run: engine.RunState,
    dispatch: Callable,
    store: engine.Store | Stream,
    test: Any,
    federation: Federation,
    schedule: Schedule,
    strategy: Strategy,
    seed: int,
    *,
    probe: Callable | None = None,
    read_out: Callable | None = None,
    table: HostTable | None = None,
    logbook: Logbook | None = None,
    checkpoints: checkpoint.Checkpoints | None = None,
    fresh: bool = True,
    bytes_per_round: tuple[int, int] = (0, 0),
    seconds: float = 0.0,
    diverged_at: int | None = None,
    label: str = "",
) -> Result:
    """Trains one seed from where `run` stands to the last round.

    Args:
      run: a placed RunState (donated); dispatch: from engine.make_rounds; store: the placed examples, or a Stream of them;
        test: placed test batches.
      probe, read_out: evaluate the model that a fresh run begins with.
      table: the client table if it lives on the host; logbook, checkpoints: where to write, or None.
      fresh: False where `run` comes from a checkpoint of its own.
      bytes_per_round: (down, up) of one round; seconds, diverged_at: what was known when the checkpoint was made.
    """
    completed = int(run.round)
    lines: list[dict[str, Any]] = []
    cohorts = Cohorts(federation, schedule, strategy, seed)
    down, up = bytes_per_round
    dispatches, pace = 0, 0.0

    def record(after: int, values: dict[str, dict[str, Any]], train_loss: float | None) -> None:
        line = {"seed": seed, "round": after}
        line |= {name: {metric: float(v) for metric, v in metrics.items()} for name, metrics in values.items()}
        line |= {
            "train_loss": train_loss,
            "bytes_down": after * down,
            "bytes_up": after * up,
            "seconds": round(seconds, 3),
        }
        lines.append(line)
        if logbook is not None:
            logbook.write(line)

    def save() -> None:
        if checkpoints is None:
            return
        if logbook is not None:
            logbook.flush()
        checkpoints.save(
            completed, saved_form(run, table), {"seconds": seconds, "seed": seed, "diverged_at": diverged_at}
        )

    if fresh and probe is not None:
        record(completed, jax.device_get(probe(read_out(run), test)), None)
        save()

    progress = Progress(label, schedule.num_rounds, completed)
    wish = schedule.rounds_per_dispatch if isinstance(store, Stream) else 1
    while completed < schedule.num_rounds and not (diverged_at is not None and schedule.stop_on_divergence):
        end = schedule.dispatch_end(completed, wish)
        ids, n_max = cohorts.ids(completed, end)
        count = end - completed
        flags = np.zeros(len(ids), bool)
        flags[:count] = [schedule.evaluated(completed + r + 1) for r in range(count)]
        begun = time.monotonic()
        rows, placed = np.maximum(ids, 0), store
        if isinstance(store, Stream):
            placed, rows = store.take(ids)
        slots = np.where(ids >= 0, ids, federation.num_clients).astype(np.int32)
        if table is not None:
            unique, slots = table.slots(ids)
            fresh = strategy.place(
                table.gather(unique), None if strategy.mesh is None else strategy.placement(run).table
            )
            run = run._replace(table=fresh)
        if isinstance(store, Stream) and end < schedule.num_rounds:
            # While the device is at work, the next dispatch's examples are read and placed. Asked for before the launch,
            # because not every backend returns from that at once.
            store.request(cohorts.ids(end, schedule.dispatch_end(end, schedule.rounds_per_dispatch))[0])
        run, metrics, probes = dispatch(run, placed, engine.Cohorts(ids, rows, slots), test, count, flags, n_max=n_max)
        del placed
        metrics, probes = jax.device_get((metrics, probes))
        if table is not None:
            table.scatter(unique, run.table)
        took = time.monotonic() - begun
        seconds += took
        dispatches += 1
        if isinstance(store, Stream):
            wish = schedule.rounds_per_dispatch  # what is read ahead must be what comes next
        elif dispatches > 1:  # the first one compiles
            pace = took / count
            wish = max(1, min(schedule.rounds_per_dispatch, int(progress.patience / max(pace, 1e-9))))
        else:
            wish = max(1, min(schedule.rounds_per_dispatch, 4))
        loss = metrics["loss"].value if "loss" in metrics else np.zeros(len(flags))
        for r in range(count):
            after = completed + r + 1
            values = {name: {m: v[r] for m, v in found.items()} for name, found in probes.items()} if flags[r] else None
            bad = not np.isfinite(loss[r]) or (values is not None and not np.isfinite(values["model"]["loss"]))
            if bad and diverged_at is None:
                diverged_at = after
            if values is not None:
                record(after, values, float(loss[r]))
            if bad and schedule.stop_on_divergence:
                break
        completed = end
        note = f"loss {loss[count - 1]:.4f}"
        if lines:
            note += "".join(
                f"  {name} {found['accuracy']:.4f}" for name, found in lines[-1].items() if isinstance(found, dict)
            )
        progress.update(completed, note)
        if schedule.checkpointed(completed) and not (diverged_at is not None and schedule.stop_on_divergence):
            save()
    progress.close()
    if logbook is not None:
        logbook.flush()
    return Result(run, lines, diverged_at, seconds, dispatches)
