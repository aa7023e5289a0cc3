"""From a Config to something that runs: data, model, algorithm, wrappers, observers; everything checked, nothing compiled."""

import dataclasses
from typing import Any, Callable

import jax

from fedwin import augment, data, local, losses, observers, sampling
from fedwin.algorithms import ALGORITHMS
from fedwin.config import OPTIMIZERS, Config
from fedwin.core import Setting
from fedwin.errors import UserError
from fedwin.federation import Federation, federate
from fedwin.models import MODELS
from fedwin.train import Schedule
from fedwin.wrappers import WRAPPERS


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
    compute = {"bfloat16": "bfloat16", "float64": "float64"}.get(config.precision)
    if compute and "dtype" in MODELS.options(model_choice.name) and "dtype" not in model_choice.params:
        text += ("," if ":" in text else ":") + f"dtype={compute}"
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
