"""Local training: batches of a client's examples, and the Solver that takes SGD steps on them.

    y <- y - lr * optimizer(direction + weight_decay * y) + displacement,

where a rule (fedwin.rules) computes direction and displacement from the mini-batch gradient.
"""

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


def ceil_div(a, b):
    """Computes a / b, rounded up.

    Args:
      a: an integer, may be traced.
      b: a positive integer, may be traced.

    Returns:
      ceil(a / b).

    Example:
      >>> ceil_div(7, 3)
      3
    """
    return (a + b - 1) // b


def shuffled(key, size, n_max: int):
    """Draws a uniform permutation of 0..size-1.

    It depends on (key, size) only, not on n_max (threefry draws are prefix-stable), so that a client's order does not
    depend on the size that its cohort is padded to.

    Args:
      key: PRNG key.
      size: number of elements to permute, int32 [].
      n_max: length of the result.

    Returns:
      int32 [n_max]; the first `size` places contain the permutation.
    """
    bits = jax.random.bits(key, (n_max,), jnp.uint32)
    place = jnp.arange(n_max)
    sort_keys = jnp.where(place < size, bits, jnp.uint32(0xFFFFFFFF))
    return jnp.argsort(sort_keys, stable=True).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class Batches:
    """Division of a client's examples into batches.

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
        """Whether no batch of `plan` contains padding."""
        return self.batching == "repeat" or (self.equal_size is not None and self.equal_size % self.batch_size == 0)

    def size(self, c: core.Client):
        """Returns the client's number of examples; a constant if all clients have equally many."""
        return c.size if self.equal_size is None else self.equal_size

    def per_pass(self, c: core.Client):
        """Returns the number of batches of one pass over the client's examples."""
        return ceil_div(self.size(c), self.batch_size)

    def steps(self, size, epochs):
        """Returns the number of local steps.

            E ceil(N / B) for 'epoch', ceil(E N / B) for 'repeat'

        Args:
          size: N, the client's number of examples.
          epochs: E.
        """
        if self.batching == "epoch":
            return epochs * ceil_div(size, self.batch_size)
        return ceil_div(epochs * size, self.batch_size)

    def places(self, n_max: int, most: int) -> int:
        """Returns the length of the order that `plan` returns.

        Args:
          n_max: number of examples of the largest client.
          most: largest number of passes.
        """
        return most * (n_max + self.batch_size) + self.batch_size + n_max

    def plan(self, c: core.Client, epochs, most: int):
        """Plans the order in which examples are visited.

        Args:
          c: the client.
          epochs: passes over its examples, an int or int32 [].
          most: upper bound on `epochs`.

        Returns:
          (positions int32 [L], steps): step j takes positions[j B : (j + 1) B], where -1 is padding.
        """
        n_max, batch, size = c.index.shape[0], self.batch_size, self.size(c)
        steps = self.steps(size, epochs)
        key = jax.random.fold_in(c.key, 0)
        place = jnp.arange(n_max)
        stride = ceil_div(size, batch) * batch if self.batching == "epoch" else size
        # A client without examples (padding) takes no step, but its stride must not be 0.
        passes = ceil_div(steps * batch, jnp.maximum(stride, 1) if self.equal_size is None else stride)

        def write_pass(q, positions):
            order = shuffled(jax.random.fold_in(key, q), size, n_max) if self.shuffle else place.astype(jnp.int32)
            row = jnp.where(place < size, order, -1)
            # Later passes overwrite the padding at the end of earlier ones; the buffer is long enough for all.
            return lax.dynamic_update_slice(positions, row, (q * stride,))

        return lax.fori_loop(0, passes, write_pass, jnp.full((self.places(n_max, most),), -1, jnp.int32)), steps

    def one_pass(self, c: core.Client):
        """Plans one pass in stored order, whose last batch may be short.

        Args:
          c: the client.

        Returns:
          (positions, steps) as `plan`.
        """
        place = jnp.arange(c.index.shape[0] + self.batch_size)
        return jnp.where(place < c.size, place, -1), self.per_pass(c)

    def take(self, c: core.Client, positions, j, full: bool = False):
        """Returns the j-th batch.

        Args:
          c: the client.
          positions: of `plan`.
          j: index of the step, int32 [].
          full: whether all batches are full; 'mask' (1 real, 0 padding) is then left out.

        Returns:
          feature -> array [B, ...].
        """
        taken = lax.dynamic_slice(positions, (j * self.batch_size,), (self.batch_size,))
        rows = c.index[jnp.maximum(taken, 0)]
        batch = {name: values[rows] for name, values in c.examples.items()}
        return batch if full else batch | {"mask": (taken >= 0).astype(jnp.float32)}

    def count(self, batch):
        """Returns the number of examples in a batch, float []."""
        return jnp.sum(batch["mask"]) if "mask" in batch else jnp.asarray(float(self.batch_size))


class Local(NamedTuple):
    """Result of local training.

    Attributes:
      params: y after the last step, within the solver's bound.
      steps: J_i, float [].
      lr: learning rate of the round, float [].
      grad: mean raw gradient along the path, (1/J) sum_j g_j(y_j), if requested, else ().
      carry: the final carry of the hook.
      stats: updated model statistics.
      metrics: {'loss': Mean over the examples of all steps}.
      optimizer: the optimizer's state after the last step.
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
        """Returns the client's Update, with the statistics and metrics of this training.

        Args:
          message: the client's message, summed over the cohort.
          state: the client's new state, () for none.

        Returns:
          core.Update.
        """
        return core.Update(message, state, self.stats, self.metrics)


class _Loop(NamedTuple):
    """State of the loop over steps; loss is the sum over the `seen` examples so far."""

    params: Any
    optimizer: Any
    stats: Any
    total: Any
    carry: Any
    loss: Any
    seen: Any


@dataclasses.dataclass(frozen=True)
class Solver:
    """Local SGD with any optax optimizer; call it with (params, client, rule).

    Attributes:
      loss: (params, stats, batch, key, info) -> (mean loss over the batch, stats).
      lr: learning rate, or a schedule of the round (int32 [] -> float []).
      batch_size: B.
      epochs: E, or a schedule of the round that never exceeds max_epochs.
      max_epochs: upper bound on the epochs of a round; None where `epochs` is a number.
      batching: 'epoch' = J_i = E ceil(N_i / B) steps with a short (masked) last batch of every pass; 'repeat' =
        FedJAX's J_i = ceil(E N_i / B) full batches, which may straddle two passes.
      shuffle: False takes the examples in stored order.
      optimizer: an optax transformation at unit learning rate; its updates are multiplied by lr. Its state is
        initialized on every client in every round, unless the algorithm stores it.
      prepare: (batch, key) -> batch, normalization and augmentation.
      weight_decay: lambda.
      wd_in_loss: add lambda/2 ||y||^2 to the loss instead of lambda y to the direction.
      clip_norm: bound of the global norm of the direction, before weight decay; None = no clipping.
      equal_size: N if every client has exactly N examples (the loops then have a static length), else None.
      bound: (start, y) -> y, applied to y after the last step, before the algorithm uses it.

    Example:
      >>> from fedwin import testing
      >>> p = testing.two_quadratics()
      >>> y = p.solve(p.variables.params, p.client(0), proximal(0.5))  # from x = 1 on f(x) = x^2 / 2
      >>> round(float(y.params["x"][0]), 3), float(y.steps)
      (0.629, 5.0)
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
        """Division of a client's examples into batches."""
        return Batches(self.batch_size, self.batching, self.shuffle, self.equal_size)

    def rate(self, round):
        """Returns the client learning rate of a round."""
        return self.lr(round) if callable(self.lr) else jnp.asarray(self.lr, float)

    def plan(self, c: core.Client):
        """Plans a client's local training.

        Args:
          c: the client.

        Returns:
          (positions, steps) as `Batches.plan`.
        """
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
          rule: computes steps from gradients (fedwin.rules).
          grad: also return the mean raw gradient along the path.
          carry: the initial carry of `on_step`.
          on_step: `on_step(carry, params, Step, last) -> (carry, params)` runs after every step; `last` is whether
            the step ended a local epoch.
          optimizer: the initial state of the optimizer; None initializes it.

        Returns:
          The model, its statistics and the metrics of its training.
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
            new, optimizer = self._apply_step(s, output.direction, output.displacement, loop.optimizer)
            recorded = output.gradient
            total = tree.add(loop.total, recorded.value) if grad else ()
            carry = loop.carry
            if on_step is not None:
                carry, new = on_step(carry, new, s, (j + 1) % per_pass == 0)
            count = batches.count(batch)
            loss = loop.loss + recorded.loss * count
            return _Loop(new, optimizer, recorded.stats, total, carry, loss, loop.seen + count)

        zero = jnp.zeros((), lr.dtype)
        total = tree.zeros_like(params) if grad else ()
        optimizer = self.optimizer.init(params) if optimizer is None else optimizer
        end = lax.fori_loop(0, steps, body, _Loop(params, optimizer, c.stats, total, carry, zero, zero))
        mean = tree.scale(1 / jnp.maximum(float_steps, 1), end.total) if grad else ()
        y = self.bound(params, end.params)
        metrics = {"loss": core.Mean(end.loss, end.seen)}
        return Local(y, float_steps, lr, mean, end.carry, end.stats, metrics, end.optimizer)

    def gradient(self, params, c: core.Client):
        """Computes the gradient over all local examples in one pass.

            (1/N) sum_n grad f(params; x_n)

        The pass uses the training-time preprocessing, in stored order.

        Args:
          params: the model.
          c: the client.

        Returns:
          The gradient, like params.
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

    def _apply_step(self, s: Step, direction, displacement, state):
        """Returns (params after the step, optimizer state)."""
        if self.clip_norm is not None:
            norm = tree.norm(direction)
            direction = tree.scale(jnp.minimum(1.0, self.clip_norm / jnp.maximum(norm, 1e-12)), direction)
        if s.weight_decay:
            direction = tree.axpy(s.weight_decay, s.params, direction)
        updates, state = self.optimizer.update(direction, state, s.params)
        new = tree.axpy(s.lr, updates, s.params)
        return (new if displacement is None else tree.add(new, displacement)), state
