"""Prepares a run: reads the data, builds model, algorithm and schedule from a Config, and checks that they fit."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import augment, core, data, engine, jax_config, local, models, observers, sampling, tree, wrappers
from fedwin.aggregation import AGGREGATORS, ATTACKS, Aggregator, Attack, aggregated, attacked, attackers, with_attackers
from fedwin.algorithms import ALGORITHMS
from fedwin.callbacks import StoppingRule, stopping
from fedwin.clock import CLOCKS, Clock, Load
from fedwin.data import Dataset
from fedwin.data.changes import Changes, changes_of
from fedwin.data.federation import Federation, federate
from fedwin.engine import evaluate
from fedwin.engine.algorithm_check import check_followed, check_round
from fedwin.engine.client_evaluation import EvaluatedClients, evaluated_clients
from fedwin.engine.communication import Bytes, communication
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError, user_code
from fedwin.local.optimizers import with_optimizer
from fedwin.losses import LOSSES
from fedwin.models import MODELS, Model
from fedwin.personalization import Personalizer
from fedwin.personalization import build_all as build_personalizers
from fedwin.registry import Registry, parse
from fedwin.runs import directory as directories
from fedwin.runs.checkpoint import checksum, named_leaves
from fedwin.runs.choices import (
    algorithm_choice,
    asynchronous_server,
    batch_size,
    check_by_time,
    check_choices,
    check_parts_by_time,
    check_training,
    clients_drawn,
    deciding_flag,
    model_choice,
    own_parts,
)
from fedwin.runs.config import Config, DataOptions, LocalOptions
from fedwin.runs.schedule import CohortSchedule, Schedule
from fedwin.runs.start import WarmStart, adapted, warm_starts
from fedwin.sampling import SAMPLERS
from fedwin.schedules import cosine, exponential, warmup, warmup_stable_decay
from fedwin.wrappers.accounting import Privacy


def _data_keys(options: DataOptions, seed: int) -> tuple[int, jax.Array]:
    return seed if options.partition_seed < 0 else options.partition_seed, seed_keys(seed)["run"]


def _federations(config: Config, dataset: Dataset) -> dict[int, Federation]:
    """Returns seed -> Federation; UserError if seeds differ in the number of clients, or `eval_val` has no examples."""

    def one(seed: int) -> Federation:
        partition_seed, clients = _data_keys(config, seed)[0], config.num_clients or None
        split = data.make_partition(dataset, config.partition, clients, partition_seed, imbalance=config.imbalance)
        held_out = None
        if config.val_fraction:
            split, held_out = data.split_validation(split, config.val_fraction, partition_seed)
        return federate(dataset, split, held_out)

    federations = {seed: one(seed) for seed in config.seeds}
    numbers = {seed: federation.num_clients for seed, federation in federations.items()}
    if len(set(numbers.values())) > 1:
        counts = ", ".join(f"{count} with seed {seed}" for seed, count in numbers.items())
        raise UserError(
            f"the partition makes different numbers of clients ({counts}); set --partition_seed, or run the seeds "
            f"separately."
        )
    if config.eval_val:
        for seed, federation in federations.items():
            evaluate.check_validation(federation, seed)
    return federations


@dataclasses.dataclass(frozen=True)
class PreparedRun:
    """The objects of a run, built from its Config before anything is compiled.

    Attributes:
      schedule: when the run evaluates and saves.
      setting: the information about the run that builders of algorithms receive.
      algorithm: the algorithm with its wrappers; the same for all seeds.
      algorithm_of: (setting, local solver) -> such an algorithm.
      observers: name -> Observer.
      federations: seed -> the data set partitioned among clients.
      normalize: batch -> batch, the preparation of test examples.
      initial: seed -> the parameters from another run; {} without --init_from.
      stopping_rule: ends seeds early (--early_stopping), or None.
      evaluated: seed -> 'seen' and 'unseen' -> clients to evaluate on their own examples; {} without --eval_clients.
      personalizers: those that adapt models to these clients.
      privacy: the guarantee of a private run (--wrap=dp), or None.
      local_work: the share of their local steps that clients take; None: all of them.
      clock: the simulated clock, or None.
      changes: changes of the clients' examples, and of test examples over rounds.
    """

    config: Config
    dataset: Dataset
    model: Model
    schedule: Schedule
    setting: core.Setting
    algorithm: core.Algorithm
    algorithm_of: Callable[[core.Setting, local.Solver], core.Algorithm]
    observers: dict[str, core.Observer]
    federations: dict[int, Federation]
    solver: local.Solver
    attack: Attack
    normalize: Callable[[Mapping[str, Any]], dict[str, Any]]
    initial: dict[int, WarmStart]
    stopping_rule: StoppingRule | None
    evaluated: dict[int, dict[str, EvaluatedClients]]
    personalizers: tuple[Personalizer, ...]
    privacy: Privacy | None
    local_work: local.LocalWork | None
    clock: Clock | None
    changes: Changes

    @property
    def attackers(self) -> dict[str, list[int]]:
        """Seed -> the clients that attack; {} without an attack."""
        masks = {seed: federation.info.get("attacker") for seed, federation in self.federations.items()}
        return {str(seed): np.flatnonzero(mask).tolist() for seed, mask in masks.items() if mask is not None}

    @functools.cached_property
    def shapes(self) -> core.Variables:
        """Shapes of the model's parameters and statistics."""
        return jax.eval_shape(self.model.init, jax.random.key(0))

    @functools.cached_property
    def hashes(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """Hashes of files by flag; of data by seed, and of those files; of the parameters that seeds start from."""
        files = directories.file_hashes(self.config) | {"sampling": self.setting.sampling.digest}
        data = directories.data_hashes(self.federations) | {flag: digest for flag, digest in files.items() if digest}
        return files, data, {str(seed): start.digest for seed, start in self.initial.items()}

    @functools.cached_property
    def bytes_per_client(self) -> Bytes:
        """Bytes that a client receives and sends in a round, which is traced; UserError if parts don't fit."""
        seed, federation = next(iter(self.federations.items()))
        store, n_max = federation.shapes(), federation.buckets[-1]
        if not ALGORITHMS[parse(self.config.algorithm).name].__module__.startswith("fedwin."):
            # A user's own: function by function, so that messages name the one with the error.
            traced = ALGORITHMS.build(self.config.algorithm, self.setting, self.solver)
            check_round(traced, self.shapes, store, n_max)

        # `communication` asks for the same shapes: jit traces a client once for both.
        phases = [each._replace(client=each.client and jax.jit(each.client)) for each in self.algorithm.phases]
        algorithm = self.algorithm._replace(phases=tuple(phases))

        def rehearse(store, who):
            fresh = self.start(seed, 1)
            cohort = engine.Cohort(who, who >= 0, who, who)
            run, _ = engine.one_round(algorithm, self.observers, Strategy(), n_max, fresh, store, cohort)
            evaluated = algorithm.eval_model(core.Variables(run.params, run.stats), run.state)
            check_followed(self.observers, fresh, run, evaluated)
            models = engine.read_out(self.algorithm, self.observers, run)
            if self.stopping_rule is not None:
                of_rule = stopping.EarlyStopping(self.stopping_rule, self.config.early_stopping)
                blank = {name: np.zeros((1, *each.shape[1:]), each.dtype) for name, each in self.dataset.test.items()}
                test = evaluate.batches(blank, 1)
                of_rule.value(self.probe(Strategy())(models, (test, test) if self.config.eval_val else test))
            first = jax.tree.map(lambda leaf: leaf[0], cohort)
            learner = store.client(first, key=run.key, round=run.round, state=(), stats=(), n_max=n_max)
            return models["model"], [_adapted(each, models["model"], learner) for each in self.personalizers]

        own = own_parts(self.config)
        names, who = ", ".join(own), jax.ShapeDtypeStruct((1,), jnp.int32)
        with user_code(next(iter(own.values()), check_round), f"a round with {names} fails"):
            for _ in range(1 + bool(own)):  # the second time, a value that the first one has stored shows
                traced = jax.make_jaxpr(lambda *args: rehearse(*args))(store, who)
            if any(isinstance(constant, jax.core.Tracer) for constant in traced.consts):
                raise UserError(f"{names}: a list, a dict or an attribute keeps a value between calls; make it state.")
        return communication(self.algorithm, self.shapes.params, store, n_max, self.shapes.stats)

    def probe(self, strategy: Strategy) -> Callable:
        """Returns (read-outs, test batches, with --eval_val also held-out ones) -> read-out -> metric -> value."""
        network, measure, validated = (self.model, self.normalize), evaluate.measure_of, None
        tested = [evaluate.make_probe(*network, measure(self.dataset, by_class=self.config.imbalance > 1), strategy)]
        if self.config.eval_val:
            validated = evaluate.make_probe(*network, measure(self.dataset, of="held out"), strategy)
        if (trigger := self.attack.trigger) is not None:
            tested.append(evaluate.make_attack_probe(*network, trigger, strategy))
        return evaluate.joined(tested, validated)

    def cohorts(self, seed: int, schedule: Schedule, strategy: Strategy) -> CohortSchedule:
        """Returns the cohorts of a seed in the rounds of a schedule, padded to the width that a strategy needs."""
        return CohortSchedule(self.federations[seed], schedule, strategy, seed, self.setting.sampling, self.local_work)

    def seconds(self, seed: int, round: int, draw: sampling.Draw) -> float:
        """Returns the simulated seconds of a 0-based round in which these clients are drawn; needs a clock."""
        if draw.seconds is not None:
            return draw.seconds
        assert self.clock is not None
        ids, work = draw.participants, None if draw.work is None else draw.work[draw.present]
        return self.clock.round(seed, ids, self.load(seed, round, ids, work), len(draw.ids) - len(ids))

    def load(self, seed: int, round: int, ids: np.ndarray, work: np.ndarray | None) -> Load:
        """Returns the load of clients that are drawn in a 0-based round, int [n], with their share of local steps."""
        steps = self.solver.count_steps(self.federations[seed].sizes[ids], round, work)
        trips = sum(phase.client is not None for phase in self.algorithm.phases)
        return Load(steps, *self.bytes_per_client, trips, round)

    def start(
        self, seed: int, slots: int, model: core.Variables | None = None, window_rounds: int | None = None
    ) -> engine.RunState:
        """Returns the state of a seed before its first round; may be traced.

        Args:
          slots: number of rows of the client table.
          model: the initial model; None: the seed's own, or that of --init_from.
          window_rounds: as in engine.init.
        """
        keys = seed_keys(seed)
        if model is None:
            model = self.model.init(keys["init"])
            model = self.initial[seed].into(model) if seed in self.initial else model
        return engine.init(self.algorithm, self.observers, model, slots, keys["run"], keys["init"], window_rounds)


def _adapted(personalizer: Personalizer, model: core.Variables, learner: core.Client) -> core.Variables:
    """Returns what a personalizer makes of a model; raises UserError unless it has the shapes of the model."""
    with user_code(personalizer.adapt, f"personalizer '{personalizer.name}' fails"):
        adapted = personalizer.adapt(model, learner)
    if not tree.alike(adapted, model):
        raise UserError(
            f"personalizer '{personalizer.name}': its function must return core.Variables of the model's shapes."
        )
    return adapted


def seed_keys(seed: int) -> dict[str, jax.Array]:
    """Returns the PRNG keys of a seed: 'init' for the model and client rows, 'run' for everything inside rounds."""
    base = jax.random.key(seed, impl="threefry2x32")
    return {"init": jax.random.fold_in(base, 0), "run": jax.random.fold_in(base, 1)}


def _solver(
    options: LocalOptions, num_rounds: int, loss: Callable, federations: dict[int, Federation], preparation: Callable
) -> local.Solver:
    # All seeds share one compiled program, which may assume equal client sizes only if all seeds have them.
    sizes = {federation.equal_size for federation in federations.values()}
    largest = max(federation.buckets[-1] for federation in federations.values())
    over_run = {"cosine": cosine, "wsd": warmup_stable_decay}.get(options.lr_schedule)
    rate = options.client_lr
    schedule = over_run(rate, num_rounds) if over_run else exponential(rate, options.lr_decay)
    solve = local.Solver(
        loss=loss,
        lr=warmup(schedule, num_rounds, options.lr_warmup) if options.lr_warmup else schedule,
        batch_size=batch_size(options, largest),
        epochs=options.local_epochs,
        max_epochs=math.ceil(options.local_epochs),
        batching=options.batching,
        shuffle=options.shuffle,
        prepare=preparation,
        weight_decay=options.weight_decay,
        wd_in_loss=options.wd_in_loss,
        clip_norm=options.clip_norm or None,
        equal_size=sizes.pop() if len(sizes) == 1 else None,
        steps=options.local_steps or None,
    )
    return with_optimizer(solve, options.client_optimizer, options.client_momentum)


def _tried(registry: Registry, text: str, federations: dict[int, Federation], failure: str, use: Callable) -> Any:
    """Builds a choice, None for '', and uses it for a seed's clients, so that errors of user code are found early."""
    if not text:
        return None
    choice = registry.check(text)
    built = registry.build(choice)
    seed, federation = next(iter(federations.items()))
    with user_code(registry[choice.name], f"{registry.kind} '{choice.name}' {failure}"):
        use(built, seed, np.arange(federation.num_clients))
    return built


def _sampler(config: Config, federations: dict[int, Federation], drawn: int) -> sampling.Sampler:
    """Returns the sampler of all seeds, which draws `drawn` clients unless the choice has a number of its own."""
    choice, per_round = SAMPLERS.check(config.sampling), config.clients_per_round
    clients = next(iter(federations.values())).num_clients
    sizes = lambda seed: federations[seed].sizes
    population = sampling.Population(clients, drawn, config.num_rounds, tuple(config.seeds), sizes)
    sampler = sampling.make_sampler(choice, population, config.dropout)
    if sampler.rate is not None and "rate" in choice.params:
        default = Config.__dataclass_fields__["clients_per_round"].default
        if per_round not in (default, round(sampler.expected)):
            raise UserError(
                f"clients_per_round={per_round} and sampling={choice}, {sampler.expected:g} clients on average, both "
                f"set the size of a round; omit one."
            )
    return sampler


def _check_private(around: list[wrappers.Wrapper], attack: Attack, aggregator: Aggregator) -> None:
    """Raises UserError if the steps of a private sum, which a server never sees, are to be attacked or combined."""
    if not any(wrapper.privacy for wrapper in around):
        return
    if aggregator.combine is not None:
        raise UserError(
            f"aggregate={aggregator.name}: --wrap=dp accounts for a sum of the clients' steps and for nothing else; "
            f"omit one of the two."
        )
    if attack.corrupt is not None and attack.count:
        raise UserError(
            f"attack={attack.name}: attackers send steps of any size, which --wrap=dp cannot account for; "
            f"set --attack=label_flip, or omit one of the two."
        )


def _with_attackers(federations: dict[int, Federation], attack: Attack) -> dict[int, Federation]:
    """Returns the federations of all seeds with the attackers among the information about clients."""
    if not attack.count:
        return federations
    masks = {seed: attackers(seed, attack.count, each.num_clients) for seed, each in federations.items()}
    marked = lambda seed, each: dataclasses.replace(each, info=with_attackers(each.info, masks[seed]))
    return {seed: marked(seed, each) for seed, each in federations.items()}


def prepare(config: Config, dataset: Dataset | None = None, model: Model | None = None) -> PreparedRun:
    """Reads the data and builds the objects of a run; UserError if parts don't fit. Arguments as for `fedwin.run`.

    Computations with them need the run's precision: `with jax_config.settings(config.precision)`.
    """
    if dataset is not None:
        config = dataclasses.replace(config, dataset=dataset.name)
    if model is not None:
        config = dataclasses.replace(config, model=model.name)
    config.check()
    config = config.resolved()
    check_choices(config, named_model=model is None)
    check_by_time(config)
    with jax_config.settings(config.precision):
        dataset = data.load(config.dataset, config.data_dir or None) if dataset is None else data.check(dataset)
        prepared = _build(config, dataset, model)
        return _by_time(prepared) if deciding_flag(config) else prepared


def _build(config: Config, dataset: Dataset, model: Model | None) -> PreparedRun:
    """Builds the objects of a run from a checked config."""
    x, y = dataset.train["x"], dataset.train["y"]
    augmentation = augment.AUGMENTATIONS.build(config.augment)
    shape = augment.output_shape(augmentation, x.shape[1:])
    network = MODELS.build(model_choice(config), shape, dataset.num_classes) if model is None else model
    models.check(network, shape, dataset.num_classes, input_dtype=x.dtype, label_shape=y.shape[1:])
    initial = warm_starts(config, network, shape, x.dtype)
    network = adapted(config, network, initial)
    changes = changes_of(config.client_shift, config.drift, dataset, config.num_rounds)
    federations = _federations(config, dataset)
    num_clients = next(iter(federations.values())).num_clients
    server = asynchronous_server(config)
    per_round = config.clients_per_round if server is None else min(server.size, num_clients)
    sampler = _sampler(config, federations, per_round)
    size = max(1, round(sampler.expected))
    setting = core.Setting(num_clients, size, config.num_rounds, lambda key: network.init(key).params, network, sampler)
    around = wrappers.build_all(config.wrap, setting)
    preparation = augment.train_preparation(dataset.mean, dataset.std, augmentation)
    loss = LOSSES.build(config.loss, network)
    solver = wrappers.wrapped_solver(_solver(config, config.num_rounds, loss, federations, preparation), around)
    attack, aggregator = ATTACKS.build(config.attack, setting), AGGREGATORS.build(config.aggregate, setting)
    _check_private(around, attack, aggregator)
    if attack.trigger is not None:
        attack.trigger.check(x.shape[1:], shape)
    changed = {seed: functools.partial(changes.of_federation, *_data_keys(config, seed)) for seed in config.seeds}
    federations = {seed: changed[seed](each) for seed, each in _with_attackers(federations, attack).items()}
    method = lambda setting, solve: wrappers.wrapped(ALGORITHMS.build(algorithm_choice(config), setting, solve), around)
    served = lambda setting, solve: aggregated(attacked(method(setting, solve), attack), aggregator)
    algorithm_of = lambda setting, solve: changes.applied(served(setting, solve))
    watching = observers.build_all(config.observe, setting)
    check_training(config, config.observe, config.num_rounds)
    early = stopping.build(config.early_stopping, config.eval_val, dataset.task) if config.early_stopping else None
    drawn = lambda work, seed, ids: local.work_of_cohort(work, seed, 0, ids[:100])
    timed = lambda clock, seed, ids: clock.round(seed, ids, Load(np.ones_like(ids), 1, 1))
    return PreparedRun(
        config=config,
        dataset=dataset,
        model=network,
        schedule=Schedule(config),
        setting=setting,
        algorithm=algorithm_of(setting, solver),
        algorithm_of=algorithm_of,
        observers=watching,
        federations=federations,
        solver=solver,
        attack=attack,
        normalize=augment.normalizer(dataset.mean, dataset.std, augmentation),
        initial=initial,
        stopping_rule=early,
        evaluated={
            seed: evaluated_clients(federation, config.eval_clients, seed, changed[seed])
            for seed, federation in federations.items()
            if config.eval_clients
        },
        personalizers=build_personalizers(config.personalize, setting, solver),
        privacy=wrappers.privacy_of(around),
        local_work=_tried(local.LOCAL_WORK, config.local_work, federations, "can't be drawn", drawn),
        clock=_tried(CLOCKS, config.clock, federations, "can't be read", timed),
        changes=changes,
    )


def _by_time(prepared: PreparedRun) -> PreparedRun:
    """Returns a synchronous run as one in which simulated seconds decide who takes part; UserError if they can't."""
    config, setting, clock = prepared.config, prepared.setting, prepared.clock
    check_parts_by_time(config, setting.sampling, prepared.solver, prepared.shapes.stats)
    assert clock is not None

    def jobs(seed: int, round: int, ids: np.ndarray, own: np.ndarray | None) -> sampling.Jobs:
        work = local.work_of_cohort(prepared.local_work, seed, round, ids) if own is None else own
        load = (by_time if server is None else prepared).load(seed, round, ids, work)  # bytes follow from who answers
        return sampling.Jobs(clock.of_clients(seed, ids, load), work)

    algorithm_of, server = prepared.algorithm_of, asynchronous_server(config)
    if server is None:
        drawing = _sampler(config, prepared.federations, clients_drawn(config))
        most = config.clients_per_round if config.over_selection > 1 else drawing.largest
        sampler = sampling.first_to_arrive(drawing, most, config.deadline, clock.timeout, jobs)
    else:
        lengths = server.size, server.concurrency, server.max_staleness
        sampler = sampling.asynchronous(setting.num_clients, *lengths, config.dropout, clock.timeout, jobs)
        # Known when a round is traced: the order of arrivals needs the bytes of the synchronous run's messages.
        longest = functools.cache(lambda: sampling.greatest_staleness(sampler, tuple(config.seeds), config.num_rounds))
        algorithm_of = lambda *parts: wrappers.asynchronous(prepared.algorithm_of(*parts), server, longest)
    timed = setting._replace(sampling=sampler)
    algorithm = algorithm_of(timed, prepared.solver)
    by_time = dataclasses.replace(prepared, setting=timed, algorithm=algorithm, algorithm_of=algorithm_of)
    return by_time


def model_digest(prepared: PreparedRun) -> str:
    """Returns a hash of the operations of a network, and of the arrays that they contain."""
    batch = {name: values[:1] for name, values in prepared.dataset.train.items()} | {"mask": np.ones(1, np.float32)}
    model, key = prepared.model, jax.random.key(0)
    output = lambda batch, key, train: model.apply(model.init(key), prepared.normalize(batch), key, train)
    traced = [jax.make_jaxpr(output, static_argnums=2)(batch, key, train) for train in (True, False)]
    inner = lambda eqn: [each for each in jax.tree.leaves(eqn.params) if hasattr(each, "consts")]
    arrays: Callable = lambda jaxpr: [jaxpr.consts, *(arrays(each) for eqn in jaxpr.eqns for each in inner(eqn))]
    return checksum(named_leaves([*map(arrays, traced)]), {"text": re.sub("0x[0-9a-f]+", "", str(traced))})
