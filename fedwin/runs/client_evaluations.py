"""Per-client evaluation of a run: passes over clients, figures of their distribution, and tables in files."""

import contextlib
import functools
import io
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from fedwin import engine
from fedwin.callbacks.scores import FIGURES, PERCENTILES, is_lower
from fedwin.core import Cohort, Mean
from fedwin.engine import client_evaluation, evaluate
from fedwin.engine.client_evaluation import PERSONAL, PLAIN, ClientProbe, EvaluatedClients
from fedwin.errors import UserError
from fedwin.files import digest_of, read_bytes
from fedwin.local import Batches
from fedwin.residence.examples import ResidentExamples, TrainingExamples
from fedwin.runs.journal import ClientEvaluation
from fedwin.runs.metrics_log import client_file, read_lines
from fedwin.runs.program import Program

# Columns of a table: name -> array [n].
Table = dict[str, np.ndarray]
# Kind -> metric -> Mean with leaves [n, M], on the host, float64.
Results = dict[str, dict[str, Mean]]

# `worst10` and `best10` are means over one client in this many.
TAIL = 10
# Prefix of the metrics of clients that never train.
UNSEEN = "unseen"


def sampled(clients: EvaluatedClients, most: int) -> EvaluatedClients:
    """Returns at most `most` of the clients, evenly spaced."""
    places = np.linspace(0, len(clients.ids) - 1, min(most, len(clients.ids))).astype(int)
    return clients._replace(ids=clients.ids[places])


def blocks(
    ids: np.ndarray, sizes: np.ndarray, width: int, rounds: int, devices: int
) -> tuple[list[Cohort], np.ndarray]:
    """Divides clients [n] into blocks of one shape [R, C]; clients of similar sizes [n] are computed together.

    Args:
      width: clients that are computed at the same time, a multiple of `devices`.
      rounds: maximum number of groups of that many clients in a block.
      devices: number of devices that share a block.

    Returns:
      The blocks, and the order of the clients of each in a call, int [R C]: each device's are consecutive.
    """
    by_size = ids[np.argsort(sizes, kind="stable")]
    groups = -(-len(ids) // width)
    rounds = min(rounds, groups)
    padded = np.zeros(-(-groups // rounds) * rounds * width, np.int32)
    padded[: len(ids)] = by_size
    present = np.arange(len(padded)) < len(ids)
    order = np.arange(rounds * width).reshape(rounds, devices, -1).swapaxes(0, 1).reshape(-1)
    parts = zip(*(values.reshape(-1, rounds, width) for values in (padded, present)), strict=True)
    return [Cohort.of(*part) for part in parts], order


class ClientEvaluations:
    """The per-client evaluations of a run; all seeds share the compiled passes.

    Args:
      evaluated: seed -> 'seen' and 'unseen' -> clients; None: those of the run.
    """

    def __init__(self, program: Program, evaluated: dict[int, dict[str, EvaluatedClients]] | None = None):
        self.program = program
        self.evaluated = program.prepared.evaluated if evaluated is None else evaluated
        prepared, strategy = program.prepared, program.strategy
        self.width = strategy.multiple(prepared.setting.sampling.largest)
        # At most as many clients at a time as in training.
        self._strategy = strategy._replace(chunk=min(strategy.chunk or self.width, self.width // strategy.num_devices))
        names = sorted({name for clients in self.evaluated.values() for name in clients})
        self._passes = {name: self._compiled(name) for name in names}

    def _compiled(self, name: str) -> Callable:
        """Returns the compiled pass over 'seen' or 'unseen' clients, of one shape for all seeds."""
        prepared = self.program.prepared
        sizes = [clients[name].federation.sizes for clients in self.evaluated.values() if name in clients]
        present = np.concatenate([some[some > 0] for some in sizes])
        most = prepared.config.eval_batch_size // (self._strategy.chunk or 1)
        batches = Batches(client_evaluation.batch_length(present, most), shuffle=False)
        network, normalize = prepared.model, prepared.normalize
        personal = name == "seen"
        probe = ClientProbe(
            lambda model, batch: network.apply(model, normalize(batch), None, False).logits,
            evaluate.measure_of(prepared.dataset, of="client"),
            batches,
            int(present.max()),
            max(federation.buckets[-1] for federation in prepared.federations.values()),
            prepared.algorithm.client_model if personal else None,
            prepared.personalizers if personal else (),
            self._strategy,
            prepared.changes,
        )
        return self.program.strategy.jit(probe)

    @contextlib.contextmanager
    def of(self, seed: int) -> Iterator[Callable[[engine.RunState], ClientEvaluation]]:
        """Gives the function that evaluates states of a seed."""
        with contextlib.ExitStack() as opened:
            yield functools.partial(self._evaluate, seed, functools.cache(lambda: self._opened(seed, opened)))

    def _opened(self, seed: int, closing: contextlib.ExitStack) -> dict[str, tuple[TrainingExamples, Any]]:
        """Returns name -> (evaluation examples, training examples) of a seed, opened on first use."""
        program = self.program
        training: Any = closing.enter_context(contextlib.closing(program.examples(seed)))
        found = {}
        for name, clients in self.evaluated[seed].items():
            held_out = clients.federation.dataset is program.prepared.dataset
            shared = training.store.examples if held_out and isinstance(training, ResidentExamples) else None
            examples = program.plan.examples(clients.federation, shared)
            closing.enter_context(contextlib.closing(examples))
            found[name] = examples, training if name == "seen" and program.prepared.personalizers else None
        return found

    def _evaluate(self, seed: int, opened: Callable, run: engine.RunState) -> ClientEvaluation:
        models = self.program.read_out(run)
        clients = self.evaluated[seed]
        results = {
            name: self._pass_over(self._passes[name], clients[name], models, run, *stores)
            for name, stores in opened().items()
        }
        table = io.BytesIO()  # an .npz of one array per column; equal tables have equal bytes
        columns = table_of(list(models), clients, results)
        np.savez_compressed(table, **columns)  # type: ignore[arg-type]  # the stub takes the columns for allow_pickle
        return ClientEvaluation(metrics_of(list(models), results), table.getvalue())

    def _pass_over(self, compiled, clients: EvaluatedClients, models, run, examples, training) -> Results:
        """Evaluates models on clients, block by block; leaves of the results are [n, M]."""
        sizes = clients.federation.sizes[clients.ids]
        sources = [source for source in (examples, training) if source is not None]
        rounds = min(source.rounds for source in sources)
        parts, order = blocks(clients.ids, sizes, self.width, rounds, self.program.strategy.num_devices)
        computed = []
        for number, cohort in enumerate(parts):
            store, rows = examples.load(cohort)
            learning, learning_rows = (None, np.zeros_like(rows)) if training is None else training.load(cohort)
            if number + 1 < len(parts):
                for source in sources:
                    source.prefetch(parts[number + 1])
            flat = lambda values: np.asarray(values).reshape(-1)[order]
            cohort = jax.tree.map(flat, cohort._replace(rows=rows))
            found = jax.device_get(compiled(models, run, store, learning, cohort, flat(learning_rows)))
            computed.append((cohort.ids[cohort.present], jax.tree.map(lambda x, of=cohort.present: x[of], found)))
        by_id = np.argsort(np.concatenate([ids for ids, _ in computed]), kind="stable")
        return jax.tree.map(lambda *x: np.concatenate(x, dtype=np.float64)[by_id], *[found for _, found in computed])


def metrics_of(models: list[str], results: Mapping[str, Results]) -> dict[str, dict[str, float]]:
    """Returns read-out -> name -> figure of the distribution over clients, as in metrics.jsonl.

    Names are `<kind>_<metric>_<figure>`, such as client_accuracy_worst10, finetune_loss_mean, unseen_accuracy_p5.
    """
    metrics: dict[str, dict[str, float]] = {name: {} for name in models}
    for who, kinds in results.items():
        for kind, by_metric in kinds.items():
            prefix = UNSEEN if who == "unseen" else kind
            for metric, mean in by_metric.items():
                for number, model in enumerate(models[:1] if kind == PERSONAL else models):
                    of_model = jax.tree.map(lambda leaf, number=number: leaf[:, number], mean)
                    found = figures(of_model, is_lower(metric))
                    metrics[model] |= {f"{prefix}_{metric}_{name}": value for name, value in found.items()}
    return metrics


def figures(metric: Mean, small_is_good: bool = False) -> dict[str, float]:
    """Returns the figures of a metric's distribution over clients.

        value_k = total_k / weight_k,   weighted = sum_k total_k / sum_k weight_k,   mean = (1/K) sum_k value_k

    and the roots of both quotients for an error whose root is taken (evaluate.RootMean).

    `std` is the population's; `worst10` and `best10` are means of the ceil(K / 10) worst and best clients; `p5` ...
    `p95` are percentiles, interpolated linearly. Clients of weight 0 are left out.

    Args:
      metric: sums over each client's examples [n], and their numbers of examples, or of tokens [n], on the host.
      small_is_good: whether small values are the good ones.

    Example:
      >>> found = figures(Mean(np.array([1.0, 6.0]), np.array([2.0, 6.0])))
      >>> found["mean"], found["weighted"], found["worst10"]
      (0.75, 0.875, 0.5)
    """
    counted = metric.weight > 0
    metric = jax.tree.map(lambda leaf: leaf[counted], metric)
    if not len(values := metric.value):
        return dict.fromkeys(FIGURES, float("nan"))
    ascending = np.sort(values)
    tail = -(-len(values) // TAIL)
    ends = [float(ascending[:tail].mean()), float(ascending[-tail:].mean())]
    worst, best = reversed(ends) if small_is_good else ends
    # After a divergence, numpy would warn, and percentiles next to an infinity or a NaN, of a loss, would all be NaN.
    with np.errstate(invalid="ignore"):
        first = (float(values.mean()), float(jax.tree.map(np.sum, metric).value), float(values.std()), worst, best)
        values = np.where(np.isnan(values), np.inf, values)
        spread, above = (np.percentile(values, PERCENTILES, method=method) for method in ("linear", "higher"))
        return dict(zip(FIGURES, (*first, *map(float, np.where(np.isnan(spread), above, spread))), strict=True))


def table_of(models: list[str], clients: Mapping[str, EvaluatedClients], results: Mapping[str, Results]) -> Table:
    """Returns the table of an evaluation: one row per client, unseen ones last."""
    names, parts = [name for name in ("seen", "unseen") if name in results], []
    for name in names:
        federation, ids = clients[name]
        columns = {
            "client": ids.astype(np.int32),
            "seen": np.full(len(ids), name == "seen"),
            "examples": federation.sizes[ids].astype(np.int32),
        }
        if federation.partition.ids is not None:
            text = federation.partition.ids[ids]
            columns["id"] = np.char.decode(text, "utf-8", "backslashreplace") if text.dtype.kind == "S" else text
        for kind, by_metric in results[name].items():
            for metric, mean in by_metric.items():
                columns |= _columns(models, kind, metric, mean, columns["examples"])
        parts.append(columns)
    table = {}
    for column in parts[0]:
        # Unseen clients have no examples to adapt a model to.
        missing = lambda part: np.full(len(part["client"]), np.nan, np.float32)
        table[column] = np.concatenate([part[column] if column in part else missing(part) for part in parts])
    return table


def _columns(models: list[str], kind: str, metric: str, mean: Mean, examples: np.ndarray) -> Table:
    """Returns the columns of one metric: 'model.accuracy', 'wima50.finetune.accuracy', 'model.personal.loss' ..."""
    middle = "" if kind == PLAIN else f"{kind}."
    weight = mean.weight
    with np.errstate(invalid="ignore"):
        values = np.where(weight > 0, mean.value, np.nan).astype(np.float32)
    # A client's own model has a value for the first of the models alone.
    columns = {f"{model}.{middle}{metric}": column for model, column in zip(models, values.T)}
    if kind == PLAIN and (weight[:, 0] != examples).any():
        columns[f"tokens.{metric}"] = weight[:, 0].astype(np.int64)
    return columns


def client_table(directory: str | os.PathLike, seed: int = 0, round: int | None = None) -> Table:
    """Reads the table of a per-client evaluation (--eval_clients), verified; `pandas.DataFrame` takes the result.

    Columns, arrays [n]: 'client', 'seen' (whether it may train), 'examples', 'id' (of natural clients), and
    '<read-out>.<metric>', '<read-out>.<personalizer>.<metric>', 'model.personal.<metric>'; for sequences
    'tokens.<metric>', how many tokens an accuracy counts.

    Args:
      directory: the run's directory.
      seed: the seed.
      round: completed rounds; None: the newest evaluation.

    Raises:
      UserError: there is no such evaluation, or its file has been altered.
    """
    written = [line for line in read_lines(pathlib.Path(directory) / "metrics.jsonl") if "clients" in line]
    lines = {line["round"]: line for line in written if line["seed"] == seed}
    if not lines or (round is not None and round not in lines):
        found = ", ".join(map(str, lines or dict.fromkeys(f"seed {line['seed']}" for line in written)))
        remedy = f"available: {found}" if found else "it diverged before one, or needs --eval_clients=all"
        wanted = "" if round is None else f" of round {round}"
        raise UserError(f"{directory} has no evaluation of clients{wanted} with seed {seed!r}; {remedy}.")
    round = max(lines) if round is None else round
    path = client_file(pathlib.Path(directory), seed, round)
    try:
        contents = read_bytes(path)
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}); restore it.") from error
    if digest_of(contents) != lines[round]["clients"]:
        raise UserError(f"{path} has been altered; restore it, or run again in another --out_dir.")
    with np.load(io.BytesIO(contents)) as stored:
        return {name: stored[name] for name in stored.files}
