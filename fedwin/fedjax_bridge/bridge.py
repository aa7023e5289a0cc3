"""fedwin.as_fedjax."""

from collections.abc import Sequence
from typing import Any

import fedjax
import jax
import optax

from fedwin.core import Algorithm, Observer
from fedwin.engine import strategy as strategies
from fedwin.errors import UserError
from fedwin.fedjax_bridge import building
from fedwin.fedjax_bridge.capacity import Capacity
from fedwin.fedjax_bridge.rounds import Rounds
from fedwin.registry import Choice, checks


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
    """Returns an algorithm as FedJAX knows algorithms: init(params) and apply(server_state, clients).

    Args:
      algorithm: a choice such as 'scaffold:option=I', or a built core.Algorithm (without the next nine arguments).
      model: its train_loss is the clients' loss.
      batch_hparams: batch_size, num_epochs and skip_shuffle count; what cannot be honoured is refused.
      client_lr: learning rate of the clients.
      client_optimizer: optax transformation at unit learning rate, multiplied by client_lr; default: SGD.
      wrap: choices of wrappers, 'ima:window=5', applied in order.
      num_clients: all clients there are; SCAFFOLD, FedDyn and heavy-ball momentum need it.
      clients_per_round: clients that the sampler draws; heavy-ball momentum needs it.
      num_rounds: rounds that will be run; FedFA, IMA and SWA need it.
      sample_batch: a batch with the model's features; FedFA needs it, to find the last layer.
      observers: name -> Observer; engine.read_out(algorithm, observers, state.run) returns their models.
      strategy: how a cohort is mapped, e.g. 'chunked:k=1'; 'default' is the measured table.
      num_classes: lets losses and algorithms that need them see each client's label counts.
      total_examples: of all clients together, for algorithms that weigh a client by its share.
      max_clients: the most clients of a cohort; more compile again.
      largest: the most examples of a client; more compile again.
      compiler_options: handed to jax.jit.

    Returns:
      A fedjax.FederatedAlgorithm; the package's docstring says what its functions take and return.

    Raises:
      UserError: for what is missing or cannot be honoured; what only a round reads is missed in the first round.
    """
    choice = dict(model=model, batch_hparams=batch_hparams, client_lr=client_lr)
    more = dict(client_optimizer=client_optimizer, wrap=wrap or None, sample_batch=sample_batch)
    numbers = dict(num_clients=num_clients, clients_per_round=clients_per_round, num_rounds=num_rounds)
    _check(algorithm, choice | numbers, dict(max_clients=max_clients, largest=largest), wrap, observers)
    built = _built(algorithm, choice, more | numbers)
    if strategy == "default":
        strategy = strategies.default_name(jax.default_backend(), jax.local_device_count())
    mapping = strategies.STRATEGIES.build(strategy)
    capacity = Capacity(max_clients, largest, total_examples, mapping.multiple)
    rounds = Rounds(built, observers or {}, mapping, capacity, num_classes, total_examples, compiler_options)
    return fedjax.FederatedAlgorithm(rounds.init, rounds)


def _check(algorithm, needed: dict[str, Any], sizes: dict[str, Any], wrap, observers) -> None:
    """Raises UserError for an argument of a type or value that no program means."""
    model, hparams, rate = needed["model"], needed["batch_hparams"], needed["client_lr"]
    counts = {name: needed[name] for name in ("num_clients", "clients_per_round", "num_rounds")}
    checks.integer("as_fedjax", **counts, **sizes)
    if model is not None and not isinstance(model, fedjax.Model):
        raise UserError(f"as_fedjax: model is a {type(model).__name__}; give a fedjax.Model.")
    if rate is not None:
        checks.number("as_fedjax", 0, client_lr=rate)
    if isinstance(hparams, fedjax.ShuffleRepeatBatchHParams):
        checks.integer("as_fedjax: batch_hparams", batch_size=hparams.batch_size, num_epochs=hparams.num_epochs)
    if isinstance(wrap, str):
        raise UserError(f"as_fedjax: wrap={wrap!r} must be a list, such as [{wrap!r}].")
    if observers is not None and not isinstance(observers, dict):
        raise UserError("as_fedjax: observers must be a dict, name -> Observer, as observers.build_all returns.")


def _built(algorithm, needed: dict[str, Any], more: dict[str, Any]) -> Algorithm:
    """The algorithm, built if it is a choice; raises UserError for arguments that it lacks or cannot use."""
    if isinstance(algorithm, Algorithm):
        for name, value in (needed | more).items():
            if value is not None:
                raise UserError(f"as_fedjax: {name} is for an algorithm given by its name; a built one has it already.")
        return algorithm
    if not isinstance(algorithm, (str, Choice)):
        raise UserError(f"as_fedjax: algorithm must be a name or a core.Algorithm, not {type(algorithm).__name__}.")
    for name, value in needed.items():
        if value is None:
            raise UserError(f"as_fedjax: '{algorithm}' needs {name}=... (or build the algorithm yourself).")
    return building.build(algorithm, **needed, **more)
