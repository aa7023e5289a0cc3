"""Checks of a Config's choices (algorithm, model, loss ...) before anything is read or built."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from fedwin import tree
from fedwin.aggregation import AGGREGATORS, ATTACKS
from fedwin.algorithms import ALGORITHMS
from fedwin.augment import AUGMENTATIONS
from fedwin.clock import CLOCKS
from fedwin.data import DRIFTS, PARTITIONS, SHIFTS, Dataset
from fedwin.errors import UserError
from fedwin.local import LOCAL_WORK, Batches, Solver
from fedwin.losses import LOSSES
from fedwin.models import MODELS, Model
from fedwin.observers import OBSERVERS
from fedwin.personalization import PERSONALIZERS
from fedwin.registry import Registry, parse
from fedwin.registry.choices import Choice
from fedwin.runs.config import MOST, Config, LocalOptions, ModelOptions, ServerOptions
from fedwin.sampling import SAMPLERS, Sampler
from fedwin.schedules import first_round
from fedwin.tree import PyTree
from fedwin.wrappers import ASYNCHRONOUS, WRAPPERS
from fedwin.wrappers.asynchronous import Buffer

# Package of an object's class -> function that converts the object to a Model.
_ADAPTERS = {"haiku": "models.from_haiku(transform, sample_batch)", "fedjax": "models.from_fedjax(model, sample_batch)"}
# Field of Config -> registry of its choices. An empty field is no choice.
REGISTRIES: dict[str, Registry] = {
    "wrap": WRAPPERS,
    "observe": OBSERVERS,
    "loss": LOSSES,
    "augment": AUGMENTATIONS,
    "partition": PARTITIONS,
    "client_shift": SHIFTS,
    "drift": DRIFTS,
    "sampling": SAMPLERS,
    "personalize": PERSONALIZERS,
    "aggregate": AGGREGATORS,
    "attack": ATTACKS,
    "local_work": LOCAL_WORK,
    "clock": CLOCKS,
    "asynchronous": ASYNCHRONOUS,
}


def check_objects(config: object, dataset: object, model: object) -> None:
    """Checks a run's arguments and its Config; the UserError of another type names the function that converts it."""
    if not isinstance(config, Config):
        raise UserError(f"config is a {_type_name(config)}; give fedwin.Config(algorithm=..., dataset=..., ...).")
    if dataset is not None and not isinstance(dataset, Dataset):
        maker = (
            "data.from_fedjax(train, test)" if hasattr(dataset, "clients") else "data.from_arrays(x, y, test_x, test_y)"
        )
        raise UserError(
            f"dataset is a {_type_name(dataset)}, not a fedwin.data.Dataset; make one with fedwin.{maker}, or name a "
            f"data set in Config(dataset=...)."
        )
    if model is not None and not isinstance(model, Model):
        origin = type(model).__module__.partition(".")[0]
        maker = _ADAPTERS.get(origin, "models.from_flax(module, input_shape)")
        raise UserError(
            f"model is a {_type_name(model)}, not a fedwin.models.Model; make one with fedwin.{maker}, or name a "
            f"network in Config(model=...)."
        )
    config.check()
    if model is not None and config.precision == "bfloat16":
        raise UserError("precision=bfloat16 does not reach a model that is an object; set the dtype of its layers.")


def _type_name(value: object) -> str:
    return f"class {value.__name__}" if isinstance(value, type) else type(value).__name__


def check_choices(config: Config, named_model: bool = True) -> None:
    """Raises UserError for an unknown name or parameter; an object in place of --model leaves its name unchecked."""
    algorithm = algorithm_choice(config)
    if named_model:
        model_choice(config)
    for registry, text in _chosen(config):
        registry.check(text)
    loss = LOSSES.check(config.loss)
    if (algorithm.name, loss.name) == ("qffl", "wsm") and not loss.params.get("mask"):
        raise UserError(f"loss={config.loss} may be negative, and qffl takes powers of it; set --loss=wsm:mask=true.")


def _chosen(config: Config) -> list[tuple[Registry, str]]:
    texts = lambda value: [value] if isinstance(value, str) else value
    return [
        (registry, text) for field, registry in REGISTRIES.items() for text in texts(getattr(config, field)) if text
    ]


def own_parts(config: Config) -> dict[str, Callable]:
    """Returns the parts of a run that are a user's code, such as "loss 'focal'", and their builders."""
    chosen = [(ALGORITHMS, config.algorithm), *_chosen(config)]
    parts = {f"{registry.kind} '{text}'": registry[parse(text).name] for registry, text in chosen}
    return {part: builder for part, builder in parts.items() if not builder.__module__.startswith("fedwin.")}


def algorithm_choice(options: ServerOptions) -> Choice:
    """Returns the algorithm with --server_lr and --weighting among its parameters; UserError if it can't have them."""
    name = parse(options.algorithm).name
    if name not in ALGORITHMS and (flags := [f"--{flag}" for flag in REGISTRIES if name in REGISTRIES[flag]]):
        raise UserError(f"algorithm '{name}' does not exist; write {' or '.join(flags)}={options.algorithm}.")
    choice = ALGORITHMS.check(options.algorithm)
    known = ALGORITHMS.options(choice.name)
    for name, value in (("server_lr", options.server_lr), ("weighting", options.weighting)):
        if not value:
            continue
        if name not in known:
            raise UserError(f"algorithm '{choice.name}' has no {name}; omit --{name}.")
        if choice.params.get(name, value) != value:
            raise UserError(f"{name} is given twice: --{name}={value} and --algorithm={options.algorithm}; keep one.")
        choice = choice.with_params(**{name: value})
    return choice


def model_choice(options: ModelOptions) -> Choice:
    """Returns --model, with the dtype of --precision if the network has one; UserError if the two do not agree."""
    choice = MODELS.check(options.model)
    has_dtype = "dtype" in MODELS.options(choice.name)
    if options.precision == "bfloat16" and not has_dtype:
        raise UserError(f"model '{choice.name}' has no dtype; omit --precision, or give its builder dtype='float32'.")
    if options.precision not in ("bfloat16", "float64") or not has_dtype:
        return choice
    if choice.params.get("dtype", options.precision) != options.precision:
        raise UserError(f"dtype is given twice: --precision={options.precision} and --model={options.model}; keep one.")
    return choice.with_params(dtype=options.precision)


def batch_size(options: LocalOptions, largest: int) -> int:
    """Returns the size of local batches; UserError if positions in a client's training do not fit into 32 bits."""
    size = min(options.batch_size, largest) if options.batching == "epoch" else options.batch_size
    batches = Batches(size, options.batching)
    flag, places = "local_epochs", batches.places(largest, options.local_epochs)
    if options.local_steps:
        flag, places = "local_steps", batches.places_of_steps(largest, options.local_steps)
    if places > MOST:
        raise UserError(
            f"{flag}={getattr(options, flag)}, batch_size={options.batch_size}: a client of {largest} examples would "
            f"see {places:,} examples per round, more than a 32-bit index allows ({MOST:,}); set a smaller "
            f"--{flag} or --batch_size."
        )
    return size


def check_training(options: ServerOptions, observe: list[str], num_rounds: int) -> None:
    """Raises UserError unless algorithm, wrappers and observers start before the run ends.

    The fact `warmup_horizon` of a registered algorithm or wrapper names its parameter that is a number of rounds before
    it takes effect. Windows of observers may be longer than the run.
    """
    everything = [(ALGORITHMS, algorithm_choice(options)), *((WRAPPERS, WRAPPERS.check(text)) for text in options.wrap)]
    for registry, choice in [*everything, *((OBSERVERS, OBSERVERS.check(text)) for text in observe)]:
        label, params = f"{registry.kind} '{choice.name}'", registry.options(choice.name) | choice.params
        name = registry.entries[choice.name].facts.get("warmup_horizon", "")
        horizon, start = params.get(name), params.get("start")
        if isinstance(horizon, int) and horizon >= num_rounds + (name in ("window", "period")):
            raise UserError(
                f"{label}: with {name}={horizon} it would never start in a run of num_rounds={num_rounds}; set a "
                f"smaller {name}, or raise --num_rounds."
            )
        if isinstance(start, int) and start >= num_rounds:
            raise UserError(
                f"{label}: start={start} comes after the last round, {num_rounds - 1}; set an earlier start, a "
                f"fraction such as 0.75, or raise --num_rounds."
            )
        if choice.name == "swa" and params.get("evaluate") != "model":
            start = first_round(params["start"], num_rounds, "swa")
            if start + params["cycle"] - (params["phase"] == "swa") >= num_rounds:
                raise UserError(
                    f"{label}: from round {start} on, cycle={params['cycle']} collects no model in a run of "
                    f"num_rounds={num_rounds}; set a smaller cycle or an earlier start, or raise --num_rounds."
                )


def deciding_flag(config: Config) -> str:
    """Returns the flag by which simulated seconds decide who takes part; '' without one."""
    if config.asynchronous:
        return f"asynchronous={config.asynchronous}"
    if config.over_selection > 1:
        return f"over_selection={config.over_selection:g}"
    return f"deadline={config.deadline:g}" if config.deadline else ""


def asynchronous_server(config: Config) -> Buffer | None:
    """Returns the asynchronous server or None; UserError if it is invalid or --clients_per_round is not its size."""
    if not config.asynchronous:
        return None
    server = ASYNCHRONOUS.build(config.asynchronous, config.clients_per_round)
    default = Config.__dataclass_fields__["clients_per_round"].default
    if config.clients_per_round not in (default, server.size):
        raise UserError(
            f"clients_per_round={config.clients_per_round} and asynchronous={config.asynchronous} both set the updates "
            f"of a server step; omit one."
        )
    return server


def clients_drawn(config: Config) -> int:
    """Returns the number of clients that a synchronous server draws, ceil(over_selection |S|)."""
    return math.ceil(round(config.over_selection * config.clients_per_round, 6))


def check_by_time(config: Config) -> None:
    """Raises UserError unless choices go with a server for which simulated seconds decide who takes part."""
    if not (flag := deciding_flag(config)):
        return
    if not config.clock:
        raise UserError(f"{flag} needs the seconds of clients; set --clock, e.g. --clock=exponential:mean=1.")
    if any(parse(text).name == "dp" for text in config.wrap):
        raise UserError(f"{flag}: who takes part depends on time, for which --wrap=dp can't account; omit one of them.")
    if (server := asynchronous_server(config)) is None:
        return
    name = algorithm_choice(config).name
    if not ALGORITHMS.entries[name].facts["asynchronous"]:
        known = ", ".join(sorted(name for name, entry in ALGORITHMS.entries.items() if entry.facts["asynchronous"]))
        raise UserError(
            f"{flag}: '{name}' is not known to work with updates from several models; choose one of {known}, or "
            f"register your own with asynchronous=True."
        )
    if parse(config.sampling).name != "uniform":
        raise UserError(f"{flag} draws the next client of all that are free; omit --sampling={config.sampling}.")
    if server.shrinks and parse(config.aggregate).name != "mean":
        raise UserError(
            f"{flag} shortens stale steps, which aggregate={config.aggregate} compares; set staleness=constant, "
            f"without mixing."
        )


def check_parts_by_time(config: Config, sampler: Sampler, solver: Solver, stats: PyTree) -> None:
    """Raises UserError unless sampler, local solver and model statistics go with such a server."""
    flag, drawn = deciding_flag(config), clients_drawn(config)
    if sampler.rate is not None or (config.over_selection > 1 and sampler.largest > config.clients_per_round):
        raise UserError(
            f"{flag}: sampling={config.sampling} may draw more clients than it is asked for; omit one of them."
        )
    if not config.asynchronous and drawn > sampler.num_clients:
        raise UserError(f"{flag} draws {drawn} clients, and the federation has {sampler.num_clients}; lower it.")
    if config.asynchronous and not tree.is_empty(stats):
        raise UserError(f"{flag}: BatchNorm's statistics are those of one model; choose a --model without BatchNorm.")
    if config.asynchronous and callable(solver.epochs):
        raise UserError(f"{flag}: a wrapper drops local epochs from round to round; choose another schedule.")


def check_deadline(config: Config, sampler: Sampler) -> None:
    """Raises UserError if nobody meets the deadline in any round."""
    draws = (sampler.cohort(seed, round) for round in range(config.num_rounds) for seed in config.seeds)
    if config.deadline and not any(len(draw.ids) for draw in draws):
        raise UserError(f"deadline={config.deadline:g}: nobody arrives in time in any round; raise it.")


def check_same_server(config: Config, other: Mapping[str, Any]) -> None:
    """Raises UserError if an asynchronous run forks one whose fields imply other clients in training."""

    def decisive(fields: Mapping[str, Any]):
        if not fields.get("asynchronous"):
            return None
        server = ASYNCHRONOUS.build(fields["asynchronous"], fields["clients_per_round"])
        own = server.size, server.concurrency, server.max_staleness, server.mixing is None
        return *own, fields["clock"], fields["dropout"]

    if config.asynchronous and decisive(vars(config)) != decisive(other):
        raise _other_arrivals(config, "--asynchronous, --clock and --dropout")


def check_arrivals(config: Config, sampler: Sampler, seed: int, first: int, seconds: float, kept: int) -> None:
    """Raises UserError unless a fork of an asynchronous run has its clients in training, with the models that they got.

    Args:
      first: the round of the fork.
      seconds: simulated seconds of the other run before that round.
      kept: number of old models in its checkpoint.
    """
    own = sum(sampler.cohort(seed, round).seconds or 0.0 for round in range(first))
    if not math.isclose(own, seconds, rel_tol=1e-6):
        raise _other_arrivals(config, "flags on which the seconds of clients depend")
    drawn = ((round, sampler.cohort(seed, round).staleness) for round in range(first, config.num_rounds))
    oldest = min(round - int(staleness.max()) for round, staleness in drawn if staleness is not None)
    if oldest <= first - kept:
        raise UserError(
            f"fork_from={config.fork_from}: a client in training has the model of round {oldest}, and the checkpoint "
            f"only the last {kept}; fork at an earlier round, or lower --num_rounds."
        )


def _other_arrivals(config: Config, flags: str) -> UserError:
    return UserError(
        f"fork_from={config.fork_from}: in an asynchronous run, clients are always in training; fork a run with the "
        f"same {flags}, or start anew from its model with --init_from."
    )
