"""An algorithm from its text, a fedjax.Model and FedJAX's hyper-parameters."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import fedjax
import optax

from fedwin import core, local, losses, models
from fedwin.algorithms import ALGORITHMS
from fedwin.core import Algorithm
from fedwin.engine.slips import reads
from fedwin.errors import UserError
from fedwin.models.convolution.lowering import lower_convolutions
from fedwin.registry import Choice
from fedwin.wrappers import WRAPPERS

MEANINGS = {
    "num_clients": "the number of all clients, e.g. num_clients=data.num_clients()",
    "clients_per_round": "the number of clients that the sampler draws",
    "num_rounds": "the number of rounds that will be run",
}


@dataclasses.dataclass(frozen=True)
class PartialSetting:
    """A core.Setting of which numbers may be missing; reading one that is raises UserError.

    Attributes:
      owner: the algorithm or wrapper that reads it, for the error.
      numbers: name -> number, or None.
      init_fn: key -> params.
      model: models.Model, or None.
    """

    owner: str
    numbers: dict[str, int | None]
    init_fn: Callable
    model: Any = None

    def _number(self, name: str) -> int:
        value = self.numbers[name]
        if value is None:
            raise UserError(f"{self.owner} needs {name}: give as_fedjax {MEANINGS[name]}.")
        return value

    @property
    def num_clients(self) -> int:
        return self._number("num_clients")

    @property
    def clients_per_round(self) -> int:
        return self._number("clients_per_round")

    @property
    def num_rounds(self) -> int:
        return self._number("num_rounds")

    @property
    def most_rounds(self) -> None:
        return None  # the program may always go on

    @property
    def participation(self) -> float:
        return self.clients_per_round / self.num_clients

    @property
    def key(self):
        return core.Setting(0, 0, 0).key  # which says why there is none


def build(
    choice: str | Choice,
    model: fedjax.Model,
    batch_hparams: fedjax.ShuffleRepeatBatchHParams,
    client_lr: float,
    client_optimizer: optax.GradientTransformation | None = None,
    wrap: Sequence[str] | None = None,
    sample_batch: dict[str, Any] | None = None,
    **numbers: int | None,
) -> Algorithm:
    """Returns the algorithm with its wrappers; arguments as in as_fedjax.

    Raises:
      UserError: for an unknown name or parameter, batches that cannot be made, or a number that is read and missing.
    """
    choice = ALGORITHMS.check(choice)
    if sample_batch is None and reads(ALGORITHMS[choice.name], "model"):
        raise UserError(f"{choice.name} needs sample_batch: give as_fedjax a batch, to find the last layer with.")
    network = None if sample_batch is None else models.from_fedjax(model, sample_batch)
    setting = PartialSetting(choice.name, numbers, inspect.unwrap(model.init), network)
    names = [text.partition(":")[0] for text in wrap or ()]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"as_fedjax: wrapper '{twice}' is given twice; keep one.")
    solve = solver(model, batch_hparams, client_lr, client_optimizer)
    wrappers = [WRAPPERS.build(text, dataclasses.replace(setting, owner=text.partition(":")[0])) for text in wrap or ()]
    for wrapper in wrappers:
        solve = wrapper.solver(solve)
    algorithm = ALGORITHMS.build(choice, setting, solve)
    for wrapper in wrappers:
        algorithm = wrapper.algorithm(algorithm)
    return algorithm


def solver(model: fedjax.Model, batch_hparams, client_lr, client_optimizer=None) -> local.Solver:
    """Returns local training as a FedJAX program means it: the model's own loss on `repeat` batches.

    Raises:
      UserError: for an optimiser of FedJAX or batch hyper-parameters that cannot be honoured.
    """
    optimizer = optax.sgd(1.0) if client_optimizer is None else client_optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        raise UserError(
            "as_fedjax: client_optimizer must be an optax transformation at unit learning rate, e.g. "
            "optax.sgd(1.0, momentum=0.9) with client_lr=0.1; an optimiser of fedjax hides its learning rate."
        )
    return local.Solver(loss(model), client_lr, optimizer=optimizer, **batches(batch_hparams))


def loss(model: fedjax.Model):
    """Returns the mean of model.train_loss, as fedjax.model_grad takes it, for local.Solver."""
    # Below fedjax's own jit, so that convolutions can be lowered.
    forward = lower_convolutions(inspect.unwrap(model.apply_for_train))
    train_loss = inspect.unwrap(model.train_loss)

    def value(params, batch, key, info):
        return losses.masked_mean(train_loss(batch, forward(params, batch, key)), batch)

    return losses.stateless(value)


def batches(hparams: fedjax.ShuffleRepeatBatchHParams) -> dict[str, Any]:
    """Returns the arguments of local.Solver that make FedJAX's batches.

    >>> batches(fedjax.ShuffleRepeatBatchHParams(batch_size=20, num_epochs=3))
    {'batch_size': 20, 'epochs': 3, 'batching': 'repeat', 'shuffle': True}

    Raises:
      UserError: for what local.Solver cannot do.
    """
    if not isinstance(hparams, fedjax.ShuffleRepeatBatchHParams):
        raise UserError(
            "as_fedjax: batch_hparams must be fedjax.ShuffleRepeatBatchHParams(batch_size=..., num_epochs=...), "
            f"not {type(hparams).__name__}."
        )
    if hparams.num_epochs is None or hparams.num_steps is not None:
        raise UserError("as_fedjax: num_steps cannot be honoured; give batch_hparams num_epochs=... alone.")
    if hparams.drop_remainder:
        raise UserError(
            "as_fedjax: drop_remainder=True cannot be honoured; the last batch is filled up from a new pass."
        )
    if hparams.seed is not None:
        raise UserError("as_fedjax: batch_hparams.seed cannot be honoured; the client's rng orders its examples.")
    return {
        "batch_size": hparams.batch_size,
        "epochs": hparams.num_epochs,
        "batching": "repeat",
        "shuffle": not hparams.skip_shuffle,
    }
