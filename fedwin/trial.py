"""From a Config to something that runs: data, model, algorithm, strategy; and the run itself."""

import dataclasses
import hashlib
import json
import os
import pathlib
import platform
import time
from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import augment, data, engine, evaluate, local, losses, observers, sampling, strategy as strategies, tables
from fedwin.algorithms import ALGORITHMS
from fedwin.checkpoint import Checkpoints, from_host
from fedwin.communication import communication
from fedwin.config import OPTIMIZERS, Config
from fedwin.core import Setting
from fedwin.errors import UserError
from fedwin.federation import Federation, federate
from fedwin.logbook import Logbook, read_lines, write_json
from fedwin.models import MODELS
from fedwin.train import Result, Schedule, train
from fedwin.wrappers import WRAPPERS

# A client table above this many bytes goes to the host unless --table says otherwise.
HOST_TABLE_BYTES = 4 << 30


@dataclasses.dataclass(frozen=True)
class Trial:
    """All that one Config means, except its seeds' states. Built before anything is compiled."""

    config: Config
    dataset: data.Dataset
    model: Any
    schedule: Schedule
    observers: dict[str, Any]
    wrappers: list[Any]
    solver: Callable[[Federation], local.Solver]

    def federation(self, seed: int) -> Federation:
        """Deals the data set for one seed."""
        config = self.config
        partition_seed = seed if config.partition_seed < 0 else config.partition_seed
        partition = data.deal(self.dataset, config.partition or None, config.num_clients or None, partition_seed)
        validation = None
        if config.val_fraction:
            partition, validation = data.split_validation(partition, config.val_fraction, partition_seed)
        return federate(self.dataset, partition, validation)

    def setting(self, federation: Federation, seed: int) -> Setting:
        keys = seed_keys(seed)
        return Setting(
            num_clients=federation.num_clients,
            clients_per_round=self.config.clients_per_round,
            num_rounds=self.config.num_rounds,
            init_fn=lambda key: self.model.init(key).params,
            key=keys["init"],
            model=self.model,
        )

    def algorithm(self, federation: Federation, seed: int):
        """Builds the algorithm with its wrappers."""
        setting = self.setting(federation, seed)
        algorithm = ALGORITHMS.build(algorithm_text(self.config), setting, self.solver(federation))
        for wrapper in self.wrappers:
            algorithm = wrapper.algorithm(algorithm)
        return algorithm


def seed_keys(seed: int) -> dict[str, jax.Array]:
    """Returns the keys that a seed stands for: 'init' draws the model, 'run' everything inside rounds."""
    base = jax.random.key(seed, impl="threefry2x32")
    return {"init": jax.random.fold_in(base, 0), "run": jax.random.fold_in(base, 1)}


def algorithm_text(config: Config) -> str:
    """Returns the algorithm with --server_lr and --weighting written into its parameters, where it takes them."""
    choice = ALGORITHMS.check(config.algorithm)
    options, params = ALGORITHMS.options(choice.name), dict(choice.params)
    for name, value in (("server_lr", config.server_lr), ("weighting", config.weighting)):
        if not value:
            continue
        if name not in options:
            raise UserError(f"algorithm '{choice.name}' has no {name}; leave --{name} away.")
        if params.setdefault(name, value) != value:
            raise UserError(f"{name} is given twice: --{name}={value} and --algorithm={config.algorithm}; keep one.")
    return choice.name + (":" if params else "") + ",".join(f"{k}={v}" for k, v in params.items())


def observers_of(config: Config, model) -> dict[str, observers.Observer]:
    """Builds the observers; all WIMA read-outs share one ring."""
    readings, found = [], {}
    for text in config.observe:
        built = observers.OBSERVERS.build(text, config.num_rounds)
        name = text.partition(":")[0]
        if isinstance(built, observers.Reading):
            if built.name in [r.name for r in readings]:
                raise UserError(f"observe={text}: '{built.name}' is given twice; keep one.")
            readings.append(built)
        elif name in found:
            raise UserError(f"observe={text}: '{name}' is given twice; keep one.")
        else:
            found[name] = built
    if readings:
        found = {"wima": observers.wima(tuple(readings), model.classifier_path), **found}
    return found


def set_precision(precision: str) -> None:
    """Makes products of float32 true float32 on every device ('tf32' keeps the device's fast default)."""
    jax.config.update("jax_enable_x64", precision == "float64")
    jax.config.update("jax_default_matmul_precision", None if precision == "tf32" else "highest")


def prepare(config: Config) -> Trial:
    """Reads the data and builds everything; raises UserError on anything that is wrong, before compilation."""
    config.check()
    ALGORITHMS.check(algorithm_text(config))
    losses.LOSSES.check(config.loss)
    model_choice = MODELS.check(config.model)
    augment.AUGMENTATIONS.build(config.augment)
    for text in config.wrap:
        WRAPPERS.check(text)
    for text in config.observe:
        observers.OBSERVERS.check(text)
    if config.partition:
        data.PARTITIONS.check(config.partition)
    set_precision(config.precision)
    dataset = data.load(config.dataset, config.data_dir or None)
    shape = dataset.train["x"].shape[1:]
    text = config.model
    if config.precision == "bfloat16" and "dtype" in MODELS.options(model_choice.name) and "dtype" not in model_choice.params:
        text += ("," if ":" in text else ":") + "dtype=bfloat16"
    model = MODELS.build(text, shape, dataset.num_classes)
    rate = local.exponential(config.client_lr, config.lr_decay)
    schedule = Schedule(
        config.num_rounds, config.clients_per_round, config.eval_every, config.final_evals, config.checkpoint_every,
        config.rounds_per_dispatch, config.stop_on_divergence,
    )
    probe_setting = Setting(config.num_clients, config.clients_per_round, config.num_rounds, model=model)
    wrappers = [WRAPPERS.build(text, probe_setting) for text in config.wrap]
    loss = losses.LOSSES.build(config.loss, model)
    preparation = augment.train_preparation(dataset.mean, dataset.std, config.augment)
    optimizer = OPTIMIZERS[config.client_optimizer](config.client_momentum)

    def solver(federation: Federation) -> local.Solver:
        train = local.Solver(
            loss, rate, config.batch_size, config.local_epochs, config.local_epochs, config.batching, config.shuffle,
            optimizer, preparation, config.weight_decay, config.wd_in_loss, config.clip_norm or None, federation.equal_size,
        )
        for wrapper in wrappers:
            train = wrapper.solver(train)
        return train

    trial = Trial(config, dataset, model, schedule, observers_of(config, model), wrappers, solver)
    for seed in config.seed_list:
        federation = trial.federation(seed)
        sampling.check_clients_per_round(config.clients_per_round, federation.num_clients)
    trial.algorithm(federation, seed)
    return trial


def resolve_strategy(name: str, clients: int) -> strategies.Strategy:
    """Returns the strategy that `name` means on this machine ('default' = the measured table)."""
    if name == "default":
        name = strategies.default_name(jax.default_backend(), jax.local_device_count(), clients)
    return strategies.STRATEGIES.build(name)


def data_hash(federation: Federation) -> str:
    """Returns a hash of the examples and of who holds which."""
    h = hashlib.blake2b(digest_size=8)
    for split in (federation.dataset.train, federation.dataset.test):
        for name in sorted(split):
            h.update(np.ascontiguousarray(split[name]).reshape(-1).view(np.uint8).data)
    for part in (federation.partition, federation.validation):
        if part is not None:
            h.update(part.order.tobytes() + part.offset.tobytes())
    return h.hexdigest()


def fingerprint(config: Config, hashes: dict[int, str], strategy: str) -> str:
    """Returns a hash of configuration, data splits, jax version, device and strategy: equal means equal numbers."""
    device = jax.devices()[0]
    known = [config.decisive(), hashes, jax.__version__, device.platform, device.device_kind, strategy]
    return hashlib.blake2b(json.dumps(known, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def open_directory(config: Config, directory: pathlib.Path) -> dict[str, Any] | None:
    """Creates the run's directory or checks that it belongs to the same run; returns what config.json says, or None.

    Raises UserError if it can't be written or belongs to a run with other flags.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"out_dir={directory} can't be written ({error.strerror}); choose another --out_dir.") from error
    path = directory / "config.json"
    if not path.exists():
        strangers = [p.name for p in directory.iterdir()]
        if strangers:
            raise UserError(f"out_dir={directory} holds other files ({strangers[0]} ...) and no config.json; choose another --out_dir.")
        return None
    try:
        known = json.loads(path.read_text())
        before = known["config"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a run's configuration; choose another --out_dir.") from error
    now = json.loads(json.dumps(config.decisive()))
    for name, value in now.items():
        if before.get(name) != value:
            raise UserError(
                f"out_dir={directory} holds a run with --{name}={before.get(name)}, not {value}; "
                f"use the same flags to go on, or another --out_dir."
            )
    return known


def versions() -> dict[str, str]:
    import flax
    import optax

    from fedwin import __version__

    return {
        "fedwin": __version__, "python": platform.python_version(), "jax": jax.__version__, "flax": flax.__version__,
        "optax": optax.__version__, "numpy": np.__version__,
    }


def fork(text: str, seed: int, run: engine.Run) -> engine.Run:
    """Starts a run from another run's checkpoint `DIR@ROUND`, state and all.

    A wrapper's own state (a window, an average) starts empty if the other run did not have it; everything else must be
    there. Raises UserError where it is not.
    """
    directory, at, round = text.rpartition("@")
    if not at or not round.isdigit():
        raise UserError(f"fork_from='{text}' is not DIR@ROUND.")
    where = pathlib.Path(directory) / "checkpoints" / f"seed_{seed}"
    found = Checkpoints(where)
    if int(round) not in found.rounds():
        known = ", ".join(map(str, found.rounds())) or "none"
        raise UserError(f"fork_from: {where} has no checkpoint of round {round}; it has: {known}.")
    leaves, _ = found.load(int(round))
    found.close()
    fresh = {name: value for name, value in _host(run).items()}
    taken = {}
    for name, value in fresh.items():
        source = name if name in leaves else _inner_name(name, leaves)
        taken[name] = leaves[source] if source else value
    missing = [n for n in fresh if n.split(".")[0] in ("params", "stats", "table") and n not in leaves]
    used = {name if name in leaves else _inner_name(name, leaves) for name in fresh}
    lost = [n for n in leaves if n.split(".")[0] in ("params", "stats", "table", "state") and n not in used]
    if missing or lost:
        raise UserError(f"fork_from: '{(missing + lost)[0]}' does not match; fork into the same model and algorithm.")
    taken["key"] = fresh["key"]
    return from_host(taken, run)


def _host(run):
    from fedwin.checkpoint import to_host

    return to_host(run)


def _inner_name(name: str, leaves) -> str | None:
    # A wrapped algorithm keeps the inner state in field `inner`; without the wrapper it stood one level higher.
    bare = name.replace(".inner", "")
    return bare if bare != name and bare in leaves else None


def run(config: Config, quiet: bool = False) -> dict[str, Any]:
    """Runs (or goes on with) everything that a Config says and returns its summary, which also stands in summary.json.

    Raises UserError for anything wrong in it, before compilation.
    """
    say = (lambda line: None) if quiet else (lambda line: print(line, flush=True))
    trial = prepare(config)
    directory = pathlib.Path(config.out_dir or f"runs/{config.dataset}_{config.algorithm}".replace(":", "_").replace(",", "_"))
    known = open_directory(config, directory)
    resolved = resolve_strategy(known["strategy"] if known else _timed(trial, say) if config.strategy == "auto" else config.strategy, config.clients_per_round)
    federations = {seed: trial.federation(seed) for seed in config.seed_list}
    hashes = {seed: data_hash(federation) for seed, federation in federations.items()}
    mark = fingerprint(config, hashes, str(resolved))
    if known and known["data"] != {str(s): h for s, h in hashes.items()}:
        raise UserError(f"out_dir={directory} was run on other data than --data_dir={config.data_dir} holds; use another --out_dir.")
    if known is None:
        device = jax.devices()[0]
        write_json(directory / "config.json", {
            "config": dataclasses.asdict(config), "strategy": str(resolved), "data": {str(s): h for s, h in hashes.items()},
            "fingerprint": mark, "versions": versions(), "device": f"{device.platform} {device.device_kind} x{jax.local_device_count()}",
            "verified_data": trial.dataset.verified,
        })
    elif known["fingerprint"] != mark:
        say(f"note: {directory} was begun under another jax or device (fingerprint {known['fingerprint']}); bits may differ from here on.")
    say(f"{directory}: {config.algorithm} on {config.dataset}, {federations[config.seed_list[0]].num_clients} clients, strategy {resolved}, fingerprint {mark}")

    logbook = Logbook(directory)
    results: dict[int, Result] = {}
    program = Program(trial, resolved, federations)
    for seed, federation in federations.items():
        results[seed] = program.seed(seed, federation, directory, logbook, say)
    logbook.close()
    summary = summarise(config, results, read_lines(directory / "metrics.jsonl"), mark, program)
    write_json(directory / "summary.json", summary)
    return summary


class Program:
    """The compiled part of a run, shared by its seeds."""

    def __init__(self, trial: Trial, strategy: strategies.Strategy, federations: dict[int, Federation]):
        self.trial, self.strategy = trial, strategy
        seed, federation = next(iter(federations.items()))
        algorithm = trial.algorithm(federation, seed)
        dataset = trial.dataset
        normalise = augment.normaliser(dataset.mean, dataset.std)
        measure = evaluate.sequence() if dataset.task == "sequence" else evaluate.classification(len(dataset.domain_names))
        self.probe = evaluate.make_probe(trial.model, normalise, measure, strategy)
        self.dispatch = engine.make_rounds(algorithm, trial.observers, strategy, self.probe)
        self.read_out = jax.jit(lambda run: engine.read_out(algorithm, trial.observers, run))
        self.first_probe = jax.jit(self.probe)
        batches = evaluate.batches(dataset.test, trial.config.eval_batch_size, strategy.num_devices)
        self.test = strategy.place(batches, _batch_sharding(strategy))
        self.examples = None
        self.algorithm = algorithm

    def _uses_host_table(self, params, num_clients: int) -> bool:
        choice = self.trial.config.table
        row = tables.row_bytes(self.algorithm, params)
        return row > 0 and (choice == "host" or (choice == "auto" and row * num_clients > HOST_TABLE_BYTES))

    def seed(self, seed: int, federation: Federation, directory: pathlib.Path, logbook: Logbook, say) -> Result:
        """Trains one seed, from its newest checkpoint if there is one."""
        trial, config, strategy = self.trial, self.trial.config, self.strategy
        algorithm = trial.algorithm(federation, seed)
        keys = seed_keys(seed)
        model = trial.model.init(keys["init"])
        store = federation.store()
        # The examples are the same for every seed: one copy on the device.
        if self.examples is None:
            self.examples = strategy.place(store.examples)
        store = strategy.place(store._replace(examples=()))._replace(examples=self.examples)
        table, slots = None, federation.num_clients
        if self._uses_host_table(model.params, federation.num_clients):
            width = strategy.multiple(config.clients_per_round)
            slots = min(config.rounds_per_dispatch * width, federation.num_clients)
            table = tables.HostTable(algorithm, model.params, federation.num_clients, slots)
        run = engine.init(algorithm, trial.observers, model, slots, keys["run"])
        if config.fork_from:
            run = fork(config.fork_from, seed, run)
        checkpoints = Checkpoints(directory / "checkpoints" / f"seed_{seed}", config.keep_checkpoints)
        saved = checkpoints.latest()
        seconds = 0.0
        if saved is not None:
            leaves, about = saved
            seconds = about["seconds"]
            if table is None:
                run = from_host(leaves, run)
            else:
                small, rows = from_host(leaves, (run._replace(table=()), table.leaves()))
                table.restore(rows)
                run = small._replace(table=run.table)
            if int(run.round) < config.num_rounds:
                say(f"seed {seed}: going on after round {int(run.round)}")
        logbook.cut(seed, int(run.round) if saved is not None else -1)
        down, up = communication(algorithm, model.params, store, federation.buckets[-1], model.stats)
        clients = config.clients_per_round
        run = strategy.place(run, strategy.placement(run))
        result = train(
            run, self.dispatch, store, self.test, federation, trial.schedule, strategy, seed,
            probe=self.first_probe, read_out=self.read_out, table=table, logbook=logbook, checkpoints=checkpoints,
            bytes_per_round=(down * clients, up * clients), seconds=seconds, label=f"seed {seed}",
        )
        checkpoints.close()
        return result


def _batch_sharding(strategy: strategies.Strategy):
    if strategy.mesh is None:
        return None
    return jax.sharding.NamedSharding(strategy.mesh, jax.sharding.PartitionSpec(strategies.AXIS))


def _timed(trial: Trial, say) -> str:
    """Times a few rounds under every strategy that fits this machine and returns the name of the fastest."""
    clients, devices = trial.config.clients_per_round, jax.local_device_count()
    names = ["chunked:k=1", "vmapped"] + [f"chunked:k={k}" for k in (4, 16) if k < clients]
    if devices > 1:
        names += [f"sharded:devices={devices},k=1", f"sharded:devices={devices},k=0"]
    seed = trial.config.seed_list[0]
    federation = trial.federation(seed)
    algorithm = trial.algorithm(federation, seed)
    seconds = {}
    for name in names:
        strategy = strategies.STRATEGIES.build(name)
        dispatch = engine.make_rounds(algorithm, {}, strategy)
        run = engine.init(algorithm, {}, trial.model.init(seed_keys(seed)["init"]), federation.num_clients, seed_keys(seed)["run"])
        run, store = strategy.place(run, strategy.placement(run)), strategy.place(federation.store())
        width = strategy.multiple(clients)
        ids = np.full((2, width), -1, np.int32)
        ids[:, :clients] = sampling.cohorts(seed, 0, 2, federation.num_clients, clients)
        slots = np.where(ids >= 0, ids, federation.num_clients).astype(np.int32)
        cohorts = engine.Cohorts(ids, np.maximum(ids, 0), slots)
        for _ in range(2):  # the first call compiles
            begun = time.monotonic()
            run, _, _ = dispatch(run, store, cohorts, (), 2, np.zeros(2, bool), n_max=federation.bucket(ids))
            jax.block_until_ready(run)
            seconds[name] = (time.monotonic() - begun) / 2
        say(f"strategy {name}: {seconds[name] * 1e3:.1f} ms per round")
    return min(seconds, key=seconds.get)


def summarise(config: Config, results: dict[int, Result], lines: list[dict[str, Any]], mark: str, program: Program) -> dict[str, Any]:
    """Returns per seed and over seeds: the mean of the last N rounds per read-out, the final round, time, rounds/s."""
    seeds = {}
    for seed, result in results.items():
        mine = [line for line in lines if line["seed"] == seed]
        last = [line for line in mine if line["round"] > config.num_rounds - max(config.final_evals, 1)] or mine[-1:]
        names = [name for name, value in mine[-1].items() if isinstance(value, dict)]
        metrics = [m for m in mine[-1]["model"]]
        seeds[seed] = {
            "final_round": mine[-1]["round"],
            "diverged_at": result.diverged_at,
            "wall_seconds": result.seconds,
            "rounds_per_second": mine[-1]["round"] / result.seconds if result.seconds else None,
            "last": {
                name: {m: float(np.mean([float(line[name][m]) for line in last])) for m in metrics} for name in names
            },
            "final": {name: {m: float(mine[-1][name][m]) for m in metrics} for name in names},
        }
    first = next(iter(seeds.values()))
    over = {
        name: {
            metric: {
                "mean": float(np.mean([s["last"][name][metric] for s in seeds.values()])),
                "std": float(np.std([s["last"][name][metric] for s in seeds.values()], ddof=1)) if len(seeds) > 1 else None,
            }
            for metric in first["last"][name]
        }
        for name in first["last"]
    }
    return {
        "algorithm": config.algorithm, "num_rounds": config.num_rounds, "last_rounds": config.final_evals,
        "fingerprint": mark, "traces": len(program.dispatch.traces), "over_seeds": over, "seeds": seeds,
    }
