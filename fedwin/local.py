"""Batches: in which order a client's examples are seen, and which of them make a step."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedwin import core, tree
from fedwin.errors import UserError
from fedwin.registry import checks
from fedwin.rules import Gradient, Rule, RuleOutput, Step, as_output, mix, proximal, sgd, shift
from fedwin.schedules import exponential


def ceil_div(a, b):
    """Returns a / b rounded up; may be traced."""
    return (a + b - 1) // b


def shuffled(key, size, n_max: int):
    """Returns a uniform permutation of 0..size-1 in the first `size` of n_max places.

    It depends on (key, size) only, not on n_max (threefry draws are prefix-stable), so that a client's order is the
    same whatever cohort it is padded to.

    Args:
      key: draws it.
      size: how many are permuted, int32 [].
      n_max: length of the result.
    """
    bits = jax.random.bits(key, (n_max,), jnp.uint32)
    place = jnp.arange(n_max)
    last = jnp.where(place < size, bits, jnp.uint32(0xFFFFFFFF))
    return jnp.argsort(last, stable=True).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class Batches:
    """How a client's examples become batches.

    Attributes:
      batch_size: B.
      batching: 'epoch', a short last batch in every pass, or 'repeat', full batches that may straddle two passes.
      shuffle: False takes the examples in stored order.
      equal_size: N if every client has exactly N examples, else None.
    """

    batch_size: int
    batching: str = "epoch"
    shuffle: bool = True
    equal_size: int | None = None

    @property
    def always_full(self) -> bool:
        """Whether no batch of `plan` has an empty place."""
        return self.batching == "repeat" or (self.equal_size is not None and self.equal_size % self.batch_size == 0)

    def size(self, c: core.Client):
        """The client's number of examples; a constant where all clients have equally many."""
        return c.size if self.equal_size is None else self.equal_size

    def per_pass(self, c: core.Client):
        """Batches of one pass over the examples."""
        return ceil_div(self.size(c), self.batch_size)

    def steps(self, size, epochs):
        """Steps of a client with `size` examples: E ceil(N / B), or ceil(E N / B)."""
        if self.batching == "epoch":
            return epochs * ceil_div(size, self.batch_size)
        return ceil_div(epochs * size, self.batch_size)

    def places(self, n_max: int, most: int) -> int:
        """Returns the length L of the order that `plan` lays out for at most n_max examples and `most` passes."""
        return most * (n_max + self.batch_size) + self.batch_size + n_max

    def plan(self, c: core.Client, epochs, most: int):
        """Lays out the order in which examples are seen.

        Args:
          c: the client.
          epochs: passes over its examples, an int or int32 [].
          most: the most that `epochs` can be.

        Returns:
          (positions int32 [L], steps): step j takes positions[j B : (j + 1) B], where -1 is an empty place.
        """
        n_max, batch, size = c.index.shape[0], self.batch_size, self.size(c)
        steps = self.steps(size, epochs)
        key = jax.random.fold_in(c.key, 0)
        place = jnp.arange(n_max)
        stride = ceil_div(size, batch) * batch if self.batching == "epoch" else size
        # A client without examples (padding) takes no step; its stride must still not be 0.
        passes = ceil_div(steps * batch, jnp.maximum(stride, 1) if self.equal_size is None else stride)

        def lay(q, positions):
            order = shuffled(jax.random.fold_in(key, q), size, n_max) if self.shuffle else place.astype(jnp.int32)
            row = jnp.where(place < size, order, -1)
            # Later passes overwrite the empty tail of earlier ones; the buffer is long enough never to clamp.
            return lax.dynamic_update_slice(positions, row, (q * stride,))

        return lax.fori_loop(0, passes, lay, jnp.full((self.places(n_max, most),), -1, jnp.int32)), steps

    def one_pass(self, c: core.Client):
        """Returns what `plan` returns, for one pass in stored order whose last batch may be short."""
        place = jnp.arange(c.index.shape[0] + self.batch_size)
        return jnp.where(place < c.size, place, -1), self.per_pass(c)

    def take(self, c: core.Client, positions, j, full: bool = False):
        """Returns the j-th batch; 'mask' (1 real, 0 empty) is left out where batches are always full."""
        taken = lax.dynamic_slice(positions, (j * self.batch_size,), (self.batch_size,))
        rows = c.index[jnp.maximum(taken, 0)]
        batch = {name: values[rows] for name, values in c.examples.items()}
        return batch if full else batch | {"mask": (taken >= 0).astype(jnp.float32)}

    def count(self, batch):
        """Returns the number of examples in a batch, float []."""
        return jnp.sum(batch["mask"]) if "mask" in batch else jnp.asarray(float(self.batch_size))


__all__ = [
    "Gradient",
    "Local",
    "Rule",
    "RuleOutput",
    "Solver",
    "Step",
    "exponential",
    "mix",
    "proximal",
    "sgd",
    "shift",
    "shuffled",
]


class Local(NamedTuple):
    """What local training returns.

    Attributes:
      params: y after the last step, within the solver's bound.
      steps: J_i, float [].
      lr: learning rate of the round, float [].
      grad: mean raw gradient along the path, (1/J) sum_j g_j(y_j), if asked for, else ().
      carry: what the hook carried.
      stats: updated model statistics.
      metrics: {'loss': Mean over the examples that were seen}.
      optimizer: the optimiser's state after the last step.
    """

    params: Any
    steps: Any
    lr: Any
    grad: Any
    carry: Any
    stats: Any
    metrics: Any
    optimizer: Any = ()

    def update(self, message, state=()) -> core.Update:
        """Returns what the client returns: its message and new row, with the statistics and metrics of its training."""
        return core.Update(message, state, self.stats, self.metrics)


class _Loop(NamedTuple):
    """What goes from step to step; seen: examples so far, loss: the sum over them."""

    params: Any
    optimizer: Any
    stats: Any
    total: Any
    carry: Any
    loss: Any
    seen: Any


@dataclasses.dataclass(frozen=True)
class Solver:
    """Local SGD over any optax optimiser; call it with (params, client, rule).

    Attributes:
      loss: (params, stats, batch, key, info) -> (mean loss over the batch, stats).
      lr: learning rate, or a schedule of the round (int32 [] -> float []).
      batch_size: B.
      epochs: E, or a schedule of the round that never exceeds max_epochs.
      max_epochs: the most epochs of a round; None where `epochs` is a number.
      batching: 'epoch' = J_i = E ceil(N_i / B) steps with a short (masked) last batch of every pass; 'repeat' =
        FedJAX's J_i = ceil(E N_i / B) full batches, which may straddle two passes.
      shuffle: False takes the examples in stored order.
      optimizer: an optax transformation at unit learning rate; its updates are multiplied by lr. Its state starts
        afresh on every client in every round, unless the algorithm keeps it.
      prepare: (batch, key) -> batch, normalisation and augmentation.
      weight_decay: lambda.
      wd_in_loss: add lambda/2 ||y||^2 to the loss instead of lambda y to the direction.
      clip_norm: bound of the global norm of the direction, before weight decay; None = no clipping.
      equal_size: N if every client has exactly N examples (the loops then have a static length), else None.
      bound: (start, y) -> y, what becomes of y after the last step; whatever the algorithm makes of y follows from it.
    """

    loss: Callable
    lr: Any
    batch_size: int
    epochs: Any = 1
    max_epochs: int | None = None
    batching: str = "epoch"
    shuffle: bool = True
    optimizer: optax.GradientTransformation = optax.sgd(1.0)
    prepare: Callable = lambda batch, key: batch
    weight_decay: float = 0.0
    wd_in_loss: bool = False
    clip_norm: float | None = None
    equal_size: int | None = None
    bound: Callable = lambda start, y: y

    def __post_init__(self):
        checks.integer("Solver", batch_size=self.batch_size, max_epochs=self.max_epochs)
        if not callable(self.epochs):
            checks.integer("Solver", epochs=self.epochs)
        if not callable(self.loss):
            raise UserError(
                f"Solver: loss={self.loss!r} must be a function, such as LOSSES.build('cross_entropy', model)."
            )

    @property
    def batches(self) -> Batches:
        """How examples become batches."""
        return Batches(self.batch_size, self.batching, self.shuffle, self.equal_size)

    def rate(self, round):
        """The client learning rate of a round."""
        return self.lr(round) if callable(self.lr) else jnp.asarray(self.lr, float)

    def plan(self, c: core.Client):
        """Returns the order in which examples are seen and the number of steps: see `Batches.plan`."""
        if not callable(self.epochs):
            return self.batches.plan(c, int(self.epochs), self.max_epochs or int(self.epochs))
        if self.max_epochs is None:
            raise ValueError("epochs is a schedule: set max_epochs to the largest value that it takes")
        return self.batches.plan(c, jnp.asarray(self.epochs(c.round), jnp.int32), self.max_epochs)

    def __call__(
        self, params, c: core.Client, rule: Rule = sgd, *, grad=False, carry=(), on_step=None, optimizer=None
    ) -> Local:
        """Trains from `params` on the client's examples.

        Args:
          params: the model to start from.
          c: the client.
          rule: turns gradients into steps.
          grad: also return the mean raw gradient along the path.
          carry: what `on_step` carries from step to step.
          on_step: `on_step(carry, params, Step, last) -> (carry, params)` runs after every step; `last` says whether
            the step ended a local epoch.
          optimizer: the optimiser's state to begin with; None = a fresh one.

        Returns:
          the model and the metrics of its training.
        """
        batches = self.batches
        positions, steps = self.plan(c)
        lr = self.rate(c.round)
        decay = 0.0 if self.wd_in_loss else self.weight_decay
        step_key = jax.random.fold_in(c.key, 1)
        float_steps = jnp.asarray(steps, lr.dtype)
        per_pass = batches.per_pass(c)

        def body(j, loop: _Loop) -> _Loop:
            augment_key, key = jax.random.split(jax.random.fold_in(step_key, j))
            batch = self.prepare(batches.take(c, positions, j, batches.always_full), augment_key)
            s = Step(loop.params, params, batch, key, j, float_steps, lr, decay)
            output = as_output(rule(self._gradient_at(loop.stats, batch, key, c.info), s))
            new, optimizer = self._moved(s, output.direction, output.displacement, loop.optimizer)
            first = output.gradient
            total = tree.add(loop.total, first.value) if grad else ()
            carry = loop.carry
            if on_step is not None:
                carry, new = on_step(carry, new, s, (j + 1) % per_pass == 0)
            count = batches.count(batch)
            return _Loop(new, optimizer, first.stats, total, carry, loop.loss + first.loss * count, loop.seen + count)

        zero = jnp.zeros((), lr.dtype)
        total = tree.zeros_like(params) if grad else ()
        optimizer = self.optimizer.init(params) if optimizer is None else optimizer
        end = lax.fori_loop(0, steps, body, _Loop(params, optimizer, c.stats, total, carry, zero, zero))
        mean = tree.scale(1 / jnp.maximum(float_steps, 1), end.total) if grad else ()
        y = self.bound(params, end.params)
        metrics = {"loss": core.Mean(end.loss, end.seen)}
        return Local(y, float_steps, lr, mean, end.carry, end.stats, metrics, end.optimizer)

    def gradient(self, params, c: core.Client):
        """Returns the gradient over all local examples at `params`: (1/N) sum_n grad f(params; x_n), one pass.

        The pass uses the training-time preprocessing, in stored order.
        """
        batches = self.batches
        positions, steps = batches.one_pass(c)
        key = jax.random.fold_in(c.key, 2)

        def body(j, total):
            augment_key, step_key = jax.random.split(jax.random.fold_in(key, j))
            batch = batches.take(c, positions, j)
            share = batches.count(batch).astype(float) / jnp.maximum(c.size, 1)
            batch = self.prepare(batch, augment_key)
            g = jax.grad(lambda p: self._value(p, c.stats, batch, step_key, c.info)[0])(params)
            return tree.axpy(share, g, total)

        return lax.fori_loop(0, steps, body, tree.zeros_like(params))

    def _value(self, params, stats, batch, key, info):
        value, new_stats = self.loss(params, stats, batch, key, info)
        if self.wd_in_loss:
            value = value + 0.5 * self.weight_decay * tree.squared_norm(params)
        return value, new_stats

    def _gradient_at(self, stats, batch, key, info) -> Callable[[Any], Gradient]:
        """Returns params -> Gradient of the loss on a batch."""

        def gradient(at) -> Gradient:
            (loss, new_stats), g = jax.value_and_grad(self._value, has_aux=True)(at, stats, batch, key, info)
            return Gradient(g, loss, new_stats)

        return gradient

    def _moved(self, s: Step, direction, displacement, state):
        """Returns (params after the step, optimiser state)."""
        if self.clip_norm is not None:
            norm = tree.norm(direction)
            direction = tree.scale(jnp.minimum(1.0, self.clip_norm / jnp.maximum(norm, 1e-12)), direction)
        if s.weight_decay:
            direction = tree.axpy(s.weight_decay, s.params, direction)
        updates, state = self.optimizer.update(direction, state, s.params)
        new = tree.axpy(s.lr, updates, s.params)
        return (new if displacement is None else tree.add(new, displacement)), state
