"""Running a Config from its directory: what is there goes on, what is not begins; the summary at the end."""

import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np

from fedwin import augment, engine, tree
from fedwin.data import Dataset
from fedwin.engine import evaluate
from fedwin.engine import strategy as strategies
from fedwin.errors import UserError
from fedwin.residence import tables
from fedwin.residence.stream import DISPATCH_BYTES, Stream, should_stream
from fedwin.runs import directory as rundir
from fedwin.runs import strategy_choice as autotune
from fedwin.runs.build import Trial, prepare, seed_keys
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.config import Config
from fedwin.runs.fork import fork, source
from fedwin.runs.logbook import Logbook, read_lines, write_json
from fedwin.runs.loop import Result, train

# A client table above this many bytes goes to the host unless --table says otherwise.
HOST_TABLE_BYTES = 4 << 30


def run(config: Config, quiet: bool = False, *, dataset: Dataset | None = None, model: Any = None) -> dict[str, Any]:
    """Runs (or goes on with) everything that a Config says and returns its summary, which also stands in summary.json.

    Args:
      config: what to run; quiet: print nothing.
      dataset, model: objects (`fedwin.data.from_fedjax`, `fedwin.models.from_flax`, ...) in place of those it names.

    Raises UserError for anything wrong in it, before compilation.
    """
    say = (lambda line: None) if quiet else (lambda line: print(line, flush=True))
    autotune.check(config.strategy)
    trial = prepare(config, dataset, model)
    config = trial.config
    directory = pathlib.Path(config.out_dir or "runs/" + _file_name(f"{config.dataset}_{config.algorithm}"))
    known = rundir.known(config, directory)
    trial.bytes_per_client  # noqa: B018 (finds what does not go together, before anything is written)
    if known is None and config.fork_from:
        source(config)
    rundir.claim(directory)
    name = (
        known["strategy"] if known else autotune.fastest(trial, say) if config.strategy == "auto" else config.strategy
    )
    strategy = autotune.resolve(name, config.clients_per_round)
    hashes = rundir.data_hashes(trial.federations)
    mark = rundir.fingerprint(config, hashes, str(strategy))
    if known is None:
        rundir.write_config(directory, config, str(strategy), hashes, mark, trial.dataset.verified, trial.model.name)
    elif known["data"] != hashes:
        raise UserError(
            f"out_dir={directory} was run on other data than --data_dir={config.data_dir} holds; use another --out_dir."
        )
    elif known["fingerprint"] != mark:
        say(
            f"note: {directory} was begun under another jax or device ({known['fingerprint']}); bits may differ from here on."
        )
    partition = next(iter(trial.federations.values())).partition
    all_of_them = partition.report.get("chosen_from")
    clients = f"{partition.num_clients}" + (f" of {all_of_them}" if all_of_them else "")
    say(
        f"{directory}: {config.algorithm} on {config.dataset}, {clients} clients, strategy {strategy}, fingerprint {mark}"
    )

    logbook = Logbook(directory)
    results: dict[int, Result] = {}
    program = Program(trial, strategy)
    for seed in config.seed_list:
        result = program.seed(seed, directory, logbook, say)
        results[seed] = dataclasses.replace(result, run=None)  # the next seed needs its memory
    logbook.close()
    summary = rundir.summarise(
        config, results, read_lines(directory / "metrics.jsonl"), mark, len(program.dispatch.traces)
    )
    write_json(directory / "summary.json", summary)
    return summary


def memory(run: engine.RunState, store, strategy: strategies.Strategy) -> str:
    """Returns what a run will hold in memory, over all devices; shapes suffice."""
    copies = strategy.num_devices
    # A stream holds the dispatch that is trained on and the next one.
    examples = 2 * store.capacity * store.example_bytes if isinstance(store, Stream) else tree.nbytes(store.examples)
    held = {
        "examples": examples * copies,
        "model": tree.nbytes((run.params, run.stats)) * copies,
        "client table": tree.nbytes(run.table),
        "algorithm": tree.nbytes(run.state),
        "observers": tree.nbytes(run.observers),
    }
    return "memory: " + ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in held.items() if size)


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in text)


class Program:
    """The compiled part of a run, shared by its seeds."""

    def __init__(self, trial: Trial, strategy: strategies.Strategy):
        self.trial, self.strategy = trial, strategy
        algorithm = trial.algorithm(trial.config.seed_list[0])
        dataset = trial.dataset
        normalise = augment.normaliser(dataset.mean, dataset.std, trial.config.augment)
        self.probe = evaluate.make_probe(trial.model, normalise, evaluate.measure_of(dataset), strategy)
        self.dispatch = engine.make_rounds(algorithm, trial.observers, strategy, self.probe)
        self.read_out = jax.jit(lambda run: engine.read_out(algorithm, trial.observers, run))
        self.first_probe = jax.jit(self.probe)
        features = evaluate.held_out(dataset, trial.config.eval_examples)
        batches = evaluate.batches(features, trial.config.eval_batch_size, strategy.num_devices)
        self.test = strategy.place(batches, _batch_sharding(strategy))
        self.examples = None
        self.algorithm = algorithm

    def _uses_host_table(self, params, num_clients: int) -> bool:
        choice = self.trial.config.table
        row = tables.row_bytes(self.algorithm, params)
        return row > 0 and (choice == "host" or (choice == "auto" and row * num_clients > HOST_TABLE_BYTES))

    def seed(self, seed: int, directory: pathlib.Path, logbook: Logbook, say) -> Result:
        """Trains one seed, from its newest checkpoint if there is one."""
        trial, config, strategy = self.trial, self.trial.config, self.strategy
        federation, schedule = trial.federations[seed], trial.schedule
        if should_stream(federation, config.examples):
            width = strategy.multiple(config.clients_per_round)
            # CPU devices hold their copies in one memory.
            copies = strategy.num_devices if jax.default_backend() == "cpu" else 1
            store = Stream(federation, width, config.rounds_per_dispatch, strategy.place, DISPATCH_BYTES // copies)
            schedule = dataclasses.replace(schedule, rounds_per_dispatch=store.rounds)
        else:
            store = federation.store()
            # The examples are the same for every seed: one copy on the device.
            if self.examples is None:
                self.examples = strategy.place(store.examples)
            store = strategy.place(store._replace(examples=()))._replace(examples=self.examples)
        table, clients = None, federation.num_clients
        slots = clients
        algorithm = trial.algorithm(seed)
        params = jax.eval_shape(lambda: trial.start(seed, 1, algorithm)).params
        hosted = self._uses_host_table(params, clients)
        if hosted:
            slots = min(schedule.rounds_per_dispatch * strategy.multiple(config.clients_per_round), clients)
        say(f"seed {seed}: {memory(jax.eval_shape(lambda: trial.start(seed, slots, algorithm)), store, strategy)}")
        run = trial.start(seed, slots, algorithm)
        if hosted:
            table = tables.HostTable(algorithm, run.params, clients, slots, seed_keys(seed)["init"])
        checkpoints = Checkpoints(directory / "checkpoints" / f"seed_{seed}", config.keep_checkpoints)
        saved = checkpoints.latest()
        about = {"seconds": 0.0, "diverged_at": None}
        if saved is not None:
            leaves, about = saved
            run = tables.resume(leaves, run, table, clients)
            if int(run.round) < config.num_rounds:
                say(f"seed {seed}: going on after round {int(run.round)}")
        elif config.fork_from:
            run = fork(config, seed, run, table, clients, say)
        logbook.cut(seed, int(run.round) if saved is not None else -1)
        down, up = (config.clients_per_round * each for each in trial.bytes_per_client)
        run = strategy.place(run, strategy.placement(run))
        result = train(
            run,
            self.dispatch,
            store,
            self.test,
            federation,
            schedule,
            strategy,
            seed,
            probe=self.first_probe,
            read_out=self.read_out,
            table=table,
            logbook=logbook,
            checkpoints=checkpoints,
            fresh=saved is None,
            bytes_per_round=(down, up),
            seconds=about["seconds"],
            diverged_at=about.get("diverged_at"),
            label=f"seed {seed}",
        )
        checkpoints.close()
        if isinstance(store, Stream):
            store.close()
            say(f"seed {seed}: {store.waited:.2f} s of {result.seconds:.1f} s were spent waiting for examples")
        return result


def _batch_sharding(strategy: strategies.Strategy):
    if strategy.mesh is None:
        return None
    return jax.sharding.NamedSharding(strategy.mesh, jax.sharding.PartitionSpec(strategies.AXIS))
