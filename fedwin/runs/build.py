"""From a Config to something that runs: data, model, algorithm, wrappers, observers; everything checked, nothing compiled."""

import dataclasses
import functools
from typing import Any, Callable

import jax
import jax.numpy as jnp

from fedwin import augment, core, data, engine, local, losses, models, observers
from fedwin.algorithms import ALGORITHMS
from fedwin.core import Setting
from fedwin.data.federation import Federation, federate
from fedwin.engine import sampling
from fedwin.engine.communication import Bytes, communication
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.models import MODELS
from fedwin.runs.config import Config, client_optimizer
from fedwin.runs.loop import Schedule
from fedwin.wrappers import WRAPPERS


@dataclasses.dataclass(frozen=True)
class Trial:
    """All that one Config means, except its seeds' states. Built before anything is compiled.

    federations: seed -> the data set as it is dealt for that seed; solver: local training.
    """

    config: Config
    dataset: data.Dataset
    model: Any
    schedule: Schedule
    observers: dict[str, Any]
    wrappers: list[Any]
    federations: dict[int, Federation]
    solver: local.Solver

    def setting(self, seed: int) -> Setting:
        return Setting(
            num_clients=self.federations[seed].num_clients,
            clients_per_round=self.config.clients_per_round,
            num_rounds=self.config.num_rounds,
            init_fn=lambda key: self.model.init(key).params,
            model=self.model,
        )

    def algorithm(self, seed: int) -> core.Algorithm:
        """Builds the algorithm with its wrappers."""
        algorithm = ALGORITHMS.build(algorithm_text(self.config), self.setting(seed), self.solver)
        for wrapper in self.wrappers:
            algorithm = wrapper.algorithm(algorithm)
        return algorithm

    def start(self, seed: int, slots: int, algorithm: core.Algorithm) -> engine.RunState:
        """Returns the Run of a seed before its first round, with a client table of so many rows; may be traced."""
        keys = seed_keys(seed)
        return engine.init(algorithm, self.observers, self.model.init(keys["init"]), slots, keys["run"], keys["init"])

    @functools.cached_property
    def bytes_per_client(self) -> Bytes:
        """What a client receives and sends in a round; traces a round and every read-out, computes nothing.

        Raises UserError where model, loss, data and wrappers don't go together.
        """
        seed, federation = next(iter(self.federations.items()))
        algorithm, store, n_max = self.algorithm(seed), federation.shapes(), federation.buckets[-1]
        one = jax.ShapeDtypeStruct((1,), jnp.int32)

        def rehearse(store, who):
            run = self.start(seed, 1, algorithm)
            run, _ = engine.one_round(algorithm, self.observers, Strategy(), n_max, run, store, who, who, who)
            return engine.read_out(algorithm, self.observers, run)

        jax.eval_shape(rehearse, store, one)
        model = jax.eval_shape(self.model.init, seed_keys(seed)["init"])
        return communication(algorithm, model.params, store, n_max, model.stats)


def _federation(config: Config, dataset: data.Dataset, seed: int) -> Federation:
    """Deals the data set for one seed."""
    partition_seed = seed if config.partition_seed < 0 else config.partition_seed
    partition = data.deal(dataset, config.partition or None, config.num_clients or None, partition_seed)
    validation = None
    if config.val_fraction:
        partition, validation = data.split_validation(partition, config.val_fraction, partition_seed)
    return federate(dataset, partition, validation)


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


def observers_of(config: Config, model) -> dict[str, core.Observer]:
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


def prepare(config: Config, dataset: data.Dataset | None = None, model: Any = None) -> Trial:
    """Reads the data and builds everything; raises UserError on anything that is wrong, before compilation.

    Args:
      config: what to run; dataset, model: take the place of those that it names.
    """
    if dataset is not None:
        config = dataclasses.replace(config, dataset=dataset.name)
    if model is not None:
        config = dataclasses.replace(config, model=model.name)
    config.check()
    ALGORITHMS.check(algorithm_text(config))
    losses.LOSSES.check(config.loss)
    if model is None:
        MODELS.check(config.model)
    augment.AUGMENTATIONS.build(config.augment)
    for text in config.wrap:
        WRAPPERS.check(text)
    for text in config.observe:
        observers.OBSERVERS.check(text)
    if config.partition:
        data.PARTITIONS.check(config.partition)
    set_precision(config.precision)
    dataset = data.load(config.dataset, config.data_dir or None) if dataset is None else data.check(dataset)
    shape = augment.output_shape(config.augment, dataset.train["x"].shape[1:])
    if model is None:
        model = MODELS.build(model_text(config), shape, dataset.num_classes)
    x, y = dataset.train["x"], dataset.train["y"]
    models.check(model, shape, dataset.num_classes, input_dtype=x.dtype, label_shape=y.shape[1:])
    rate = local.exponential(config.client_lr, config.lr_decay)
    schedule = Schedule(
        config.num_rounds,
        config.clients_per_round,
        config.eval_every,
        config.final_evals,
        config.checkpoint_every,
        config.rounds_per_dispatch,
        config.stop_on_divergence,
    )
    federations = {seed: _federation(config, dataset, seed) for seed in config.seed_list}
    clients = {federation.num_clients for federation in federations.values()}
    sampling.check_clients_per_round(config.clients_per_round, min(clients))
    setting = Setting(min(clients), config.clients_per_round, config.num_rounds, model=model)
    wrappers = [WRAPPERS.build(text, setting) for text in config.wrap]
    loss = losses.LOSSES.build(config.loss, model)
    preparation = augment.train_preparation(dataset.mean, dataset.std, config.augment)
    optimizer, weight_decay = client_optimizer(config)
    # All seeds share one compiled program: clients are of equal size in all of them, or the program must not count on it.
    sizes = {federation.equal_size for federation in federations.values()}
    solver = local.Solver(
        loss,
        rate,
        config.batch_size,
        config.local_epochs,
        config.local_epochs,
        config.batching,
        config.shuffle,
        optimizer,
        preparation,
        weight_decay,
        config.wd_in_loss,
        config.clip_norm or None,
        sizes.pop() if len(sizes) == 1 else None,
    )
    for wrapper in wrappers:
        solver = wrapper.solver(solver)
    trial = Trial(config, dataset, model, schedule, observers_of(config, model), wrappers, federations, solver)
    trial.algorithm(config.seed_list[0])
    return trial


def model_text(config: Config) -> str:
    """Returns --model with the dtype of --precision written into its parameters, where it takes one."""
    choice = MODELS.check(config.model)
    dtype = {"bfloat16": "bfloat16", "float64": "float64"}.get(config.precision)
    if dtype is None or "dtype" not in MODELS.options(choice.name) or "dtype" in choice.params:
        return config.model
    return config.model + ("," if choice.params else ":") + f"dtype={dtype}"
