"""as_fedjax: builds a fedjax.FederatedAlgorithm from an algorithm's name and FedJAX's hyper-parameters."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import fedjax
import jax
import optax

from fedwin import core, jax_config, local, losses, models
from fedwin.algorithms import ALGORITHMS
from fedwin.core import Algorithm, Observer
from fedwin.engine import strategy as strategies
from fedwin.engine.user_errors import reads
from fedwin.errors import UserError
from fedwin.fedjax_bridge.cohort import Capacity
from fedwin.fedjax_bridge.rounds import Rounds
from fedwin.models.convolution.lowering import lower_convolutions
from fedwin.registry import Choice, ranges
from fedwin.wrappers import WRAPPERS, together, wrapped, wrapped_solver


def as_fedjax(
    algorithm: Algorithm | Choice | str,
    *,
    model: fedjax.Model | None = None,
    batch_hparams: fedjax.ShuffleRepeatBatchHParams | None = None,
    client_lr: float | None = None,
    client_optimizer: optax.GradientTransformation | None = None,
    wrap: Sequence[str] = (),
    num_clients: int | None = None,
    clients_per_round: int | None = None,
    num_rounds: int | None = None,
    sample_batch: dict[str, Any] | None = None,
    observers: dict[str, Observer] | None = None,
    strategy: str = "default",
    num_classes: int | None = None,
    total_examples: int | None = None,
    max_clients: int | None = None,
    largest: int | None = None,
    compiler_options: dict | None = None,
) -> fedjax.FederatedAlgorithm:
    """Returns an algorithm as a fedjax.FederatedAlgorithm: init(params) and apply(server_state, clients).

    >>> fed = as_fedjax(
    ...     "fedavg",
    ...     model=fedjax.models.emnist.create_logistic_model(),
    ...     batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=20),
    ...     client_lr=0.1,
    ... )
    >>> type(fed).__name__
    'FederatedAlgorithm'

    Args:
      algorithm: a choice such as 'scaffold:option=I', or a built core.Algorithm (without the next nine arguments).
      model: its train_loss is the clients' loss.
      batch_hparams: batch_size, num_epochs or num_steps, and skip_shuffle are used; other fields must have their
        defaults.
      client_lr: learning rate of the clients.
      client_optimizer: optax transformation at unit learning rate, multiplied by client_lr; default: SGD.
      wrap: choices of wrappers, such as 'ima:window=5', applied in order.
      num_clients: number of all clients; SCAFFOLD, FedDyn and heavy-ball momentum need it.
      clients_per_round: clients that the sampler draws; heavy-ball momentum needs it.
      num_rounds: rounds that will be run; FedFA, IMA and SWA need it.
      sample_batch: a batch with the model's features; FedFA needs it to find the last layer.
      observers: name -> Observer; engine.read_out(fed.apply.algorithm, observers, state.run) returns their models.
      strategy: how a cohort is mapped, e.g. 'chunked:k=1'; 'default' selects by backend and number of devices.
      num_classes: width of the clients' label counts, for losses and algorithms that read them.
      total_examples: examples of all clients together, for algorithms that read a client's share of them.
      max_clients: upper bound on the clients of a cohort; a larger cohort compiles again.
      largest: upper bound on the examples of a client; a larger client compiles again.
      compiler_options: option of XLA -> value, for jax.jit; None: those of fedwin's runs.

    Returns:
      A fedjax.FederatedAlgorithm; see the docstring of fedwin.fedjax_bridge for its functions.

    Raises:
      UserError: when an argument is missing, of the wrong type, or asks for something that is not supported. An
        argument that only a round reads is reported in the first round.
    """
    choice = dict(model=model, batch_hparams=batch_hparams, client_lr=client_lr)
    more = dict(client_optimizer=client_optimizer, wrap=wrap or None, sample_batch=sample_batch)
    numbers = dict(num_clients=num_clients, clients_per_round=clients_per_round, num_rounds=num_rounds)
    sizes = dict(max_clients=max_clients, largest=largest, num_classes=num_classes, total_examples=total_examples)
    _check(model, client_lr, numbers | sizes, wrap, observers, compiler_options)
    built = _built(algorithm, choice, more, numbers)
    if strategy == "default":
        strategy = strategies.default_name(jax.local_device_count())
    mapping = strategies.STRATEGIES.build(strategy)
    capacity = Capacity(max_clients, largest, total_examples, mapping.multiple)
    options = compiler_options or jax_config.compiler_options()
    rounds = Rounds(built, observers or {}, mapping, capacity, num_classes, total_examples, options)
    return fedjax.FederatedAlgorithm(rounds.init, rounds)


def _check(model, client_lr, counts: dict[str, Any], wrap, observers, compiler_options) -> None:
    """Raises UserError for arguments of a wrong type or an impossible value."""
    ranges.check_values("as_fedjax", ranges.PositiveInt | None, **counts)
    if model is not None and not isinstance(model, fedjax.Model):
        raise UserError(f"as_fedjax: model is a {type(model).__name__}; give a fedjax.Model.")
    ranges.check_values("as_fedjax", ranges.NonNegative | None, client_lr=client_lr)
    if isinstance(wrap, str) or not isinstance(wrap, Sequence):
        raise UserError(f"as_fedjax: wrap={wrap!r} must be a list, such as ['ima:window=5'].")
    known = isinstance(observers, dict) and all(isinstance(each, Observer) for each in observers.values())
    if compiler_options is not None and not isinstance(compiler_options, dict):
        raise UserError(f"as_fedjax: compiler_options={compiler_options!r} must be a dict, option -> value.")
    if observers is not None and not known:
        raise UserError("as_fedjax: observers must be a dict, name -> Observer, as observers.build_all returns.")


def _built(algorithm, needed: dict[str, Any], more: dict[str, Any], numbers: dict[str, int | None]) -> Algorithm:
    """Returns the algorithm with its wrappers, built if it is a choice; the arguments are those of as_fedjax.

    Raises:
      UserError: for missing or superfluous arguments, an unknown name or parameter, unsupported batches, or a missing
        number that the algorithm reads.
    """
    if isinstance(algorithm, Algorithm):
        for name, value in (needed | more | numbers).items():
            if value is not None:
                raise UserError(f"as_fedjax: {name} is for an algorithm given by its name; a built one has it already.")
        return algorithm
    if not isinstance(algorithm, (str, Choice)):
        raise UserError(f"as_fedjax: algorithm must be a name or a core.Algorithm, not {type(algorithm).__name__}.")
    for name, value in needed.items():
        if value is None:
            raise UserError(f"as_fedjax: '{algorithm}' needs {name}=... (or build the algorithm yourself).")
    choice, model, sample_batch = ALGORITHMS.check(algorithm), needed["model"], more["sample_batch"]
    if sample_batch is None and reads(ALGORITHMS[choice.name], "model"):
        raise UserError(f"{choice.name} needs sample_batch: give as_fedjax a batch, to find the last layer with.")
    network = None if sample_batch is None else models.from_fedjax(model, sample_batch)
    setting = PartialSetting(choice.name, numbers, inspect.unwrap(model.init), network)
    solve = build_solver(**needed, client_optimizer=more["client_optimizer"])
    around = [WRAPPERS.check(text) for text in more["wrap"] or ()]
    wrappers = together([WRAPPERS.build(each, dataclasses.replace(setting, owner=each.name)) for each in around])
    return wrapped(ALGORITHMS.build(choice, setting, wrapped_solver(solve, wrappers)), wrappers)


_NUMBERS = {
    "num_clients": "the number of all clients, e.g. num_clients=data.num_clients()",
    "clients_per_round": "the number of clients that the sampler draws",
    "num_rounds": "the number of rounds that will be run",
}


@dataclasses.dataclass(frozen=True)
class PartialSetting:
    """A core.Setting whose numbers may be missing; reading a missing number raises UserError.

    Attributes:
      owner: the algorithm or wrapper that reads it, for the message.
    """

    owner: str
    numbers: dict[str, int | None]
    init_fn: Callable
    model: Any = None
    most_rounds = None  # the program may run any number of rounds
    sampling = None  # the program draws the clients
    key, participation = core.Setting.key, core.Setting.participation

    def __getattr__(self, name: str) -> int:
        """Returns K, |S| or T by its name; raises UserError if it was not given."""
        if name not in _NUMBERS:
            raise AttributeError(name)
        value = self.numbers[name]
        if value is None:
            raise UserError(f"{self.owner} needs {name}: give as_fedjax {_NUMBERS[name]}.")
        return value


def build_solver(model: fedjax.Model, batch_hparams, client_lr, client_optimizer=None) -> local.Solver:
    """Returns the local training of a FedJAX program: the model's own loss on `repeat` batches.

    Raises:
      UserError: for an optimizer of FedJAX or unsupported batch hyper-parameters.
    """
    optimizer = optax.sgd(1.0) if client_optimizer is None else client_optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        raise UserError(
            "as_fedjax: client_optimizer must be an optax transformation at unit learning rate, e.g. "
            "optax.sgd(1.0, momentum=0.9) with client_lr=0.1; an optimizer of fedjax hides its learning rate."
        )
    # Below fedjax's own jit, so that convolutions can be lowered.
    forward = lower_convolutions(inspect.unwrap(model.apply_for_train))
    train_loss = inspect.unwrap(model.train_loss)

    def loss(params, batch, key, info):  # the mean, as in fedjax.model_grad
        return losses.masked_mean(train_loss(batch, forward(params, batch, key)), batch)

    options = batch_options(batch_hparams)
    return local.Solver(losses.stateless(loss), client_lr, optimizer=optimizer, **options)


def batch_options(hparams: fedjax.ShuffleRepeatBatchHParams) -> dict[str, Any]:
    """Returns the arguments of local.Solver for FedJAX's batches.

    Raises:
      UserError: for another type, a number below 1, both or neither of num_epochs and num_steps, or for drop_remainder
        or seed, which are not supported.
    """
    if not isinstance(hparams, fedjax.ShuffleRepeatBatchHParams):
        raise UserError(
            "as_fedjax: batch_hparams must be fedjax.ShuffleRepeatBatchHParams(batch_size=..., num_epochs=...), "
            f"not {type(hparams).__name__}."
        )
    counts = {name: getattr(hparams, name) for name in ("batch_size", "num_epochs", "num_steps")}
    ranges.check_values("as_fedjax: batch_hparams", ranges.PositiveInt | None, **counts)
    if (hparams.num_epochs is None) == (hparams.num_steps is None):
        raise UserError("as_fedjax: give batch_hparams one of num_epochs=... and num_steps=..., the other None.")
    if hparams.drop_remainder:
        raise UserError("as_fedjax: drop_remainder=True is not supported; the last batch is filled up from a new pass.")
    if hparams.seed is not None:
        raise UserError("as_fedjax: batch_hparams.seed is not supported; the client's rng orders its examples.")
    return {
        "batch_size": hparams.batch_size,
        "batching": "repeat",
        "shuffle": not hparams.skip_shuffle,
    } | ({"epochs": hparams.num_epochs} if hparams.num_steps is None else {"steps": hparams.num_steps})
