"""The Solver: local SGD steps on a client's batches.

    y <- y - lr * optimizer(direction + weight_decay * y) + displacement,

where a rule (fedwin.rules) computes direction and displacement from the mini-batch gradient.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from fedwin import core, tree
from fedwin.errors import UserError
from fedwin.local.batches import Batches, share_of
from fedwin.registry.ranges import Positive, PositiveInt, check_values
from fedwin.rules import Gradient, Rule, Step, sgd
from fedwin.tree import PyTree

# A number, or a function of the round, int32 [] -> [].
Schedule = float | Callable[[jax.Array], jax.Array]


class Local(NamedTuple):
    """Result of local training.

    Attributes:
      params: y after the last step, within the solver's bound.
      steps: J_i, float [].
      lr: learning rate of the round, float [].
      grad: mean raw gradient along the path, (1/J) sum_j g_j(y_j), None unless requested.
      carry: the final carry of the hook and the rule.
      stats: updated model statistics.
      metrics: {'loss': Mean over the examples of all steps}.
      optimizer: the optimizer's state after the last step.
    """

    params: PyTree
    steps: jax.Array
    lr: jax.Array
    grad: PyTree
    carry: PyTree
    stats: PyTree
    metrics: dict[str, core.Mean]
    optimizer: PyTree = ()

    def update(self, message, state=()) -> core.Update:
        """Returns the client's Update with a message, a new state and the statistics and metrics of this training."""
        return core.Update(message, state, self.stats, self.metrics)


class _Loop(NamedTuple):
    """State of the loop over steps; loss is the sum over the `seen` examples so far."""

    params: PyTree
    optimizer: PyTree
    stats: PyTree
    total: PyTree
    carry: PyTree
    loss: jax.Array
    seen: jax.Array


@dataclasses.dataclass(frozen=True)
class Solver:
    """Local SGD with any optax optimizer; call it with (params, client, rule).

    Attributes:
      loss: (params, stats, batch, key, info) -> (mean loss over the batch, stats).
      lr: learning rate, or a schedule of the round (int32 [] -> float []).
      batch_size: B.
      epochs: E, which need not be whole, or a schedule of the round (integers) that never exceeds max_epochs.
      max_epochs: upper bound on the epochs of a round; None where `epochs` is a number.
      batching: 'epoch' = J_i = ceil(E ceil(N_i / B)) steps with a short (masked) last batch in every pass; 'repeat' =
        FedJAX's J_i = ceil(E N_i / B) full batches, which may straddle two passes.
      shuffle: False takes the examples in stored order.
      optimizer: an optax transformation at unit learning rate; its updates are multiplied by lr. Its state is
        initialized on every client in every round, unless the algorithm stores it.
      prepare: (batch, key) -> batch, normalization and augmentation.
      weight_decay: lambda.
      wd_in_loss: add lambda/2 ||y||^2 to the loss instead of lambda y to the direction.
      clip_norm: bound on the global norm of the direction, before weight decay; None = no clipping.
      equal_size: N if every client has exactly N examples (the loops then have a static length), else None.
      bound: (start, y) -> y, applied to y after the last step, before the algorithm uses it.
      steps: H, the number of local steps of every client, pass after pass; None: as given by `epochs`.
      frozen: Step -> tree of booleans like params, the parameters that the step leaves unchanged; None: none.

    Client.work shortens the local training of a client to J_i = max(1, ceil(w_i J)) of its J steps.

    Example:
      >>> from fedwin import rules, testing
      >>> p = testing.two_quadratics()
      >>> y = p.solve(p.variables.params, p.client(0), rules.proximal(0.5))  # from x = 1 on f(x) = x^2 / 2
      >>> round(float(y.params["x"][0]), 3), float(y.steps)
      (0.629, 5.0)
    """

    loss: Callable
    lr: Schedule
    batch_size: int
    epochs: Schedule = 1
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
    steps: int | None = None
    frozen: Callable | None = None

    def __post_init__(self):
        check_values("Solver", PositiveInt, batch_size=self.batch_size)
        check_values("Solver", PositiveInt | None, max_epochs=self.max_epochs, steps=self.steps)
        check_values("Solver", Literal["epoch", "repeat"], batching=self.batching)
        if not callable(self.epochs):
            check_values("Solver", Positive if isinstance(self.epochs, float) else PositiveInt, epochs=self.epochs)
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
        """Returns (positions int32 [L], steps): step j takes positions[j B : (j + 1) B], where -1 is padding."""
        steps = self._steps(self.batches.size(c), c.round)
        if c.work is not None:
            steps = jnp.clip(share_of(c.work, steps), jnp.minimum(steps, 1), steps)
        return self.batches.order(c, steps, self.places(c.index.shape[0])), steps

    def places(self, n_max: int) -> int:
        """Returns the length of the order that `plan` makes; the largest client has n_max examples."""
        if self.steps is not None:
            return self.batches.places_of_steps(n_max, self.steps)
        return self.batches.places(n_max, cast(float, self.max_epochs or self.epochs))

    def count_steps(self, sizes: np.ndarray, round: int, work: np.ndarray | None = None) -> np.ndarray:
        """Counts the local steps of clients on the host; the result equals that of training.

        Args:
          sizes: number of examples of each client, int [n].
          round: 0-based.
          work: share of its steps that each client takes, float32 [n] (Client.work); None for all.

        Returns:
          J_i, int [n]; 0 for clients without examples.
        """
        steps = np.broadcast_to(np.asarray(self._steps(np.asarray(sizes), round)), np.shape(sizes))
        return steps if work is None else np.clip(share_of(work, steps), np.minimum(steps, 1), steps)

    def _steps(self, size, round):
        """Returns the number of local steps in a round of a client that takes all of them."""
        if self.steps is not None:
            return (size > 0) * (jnp.int32(self.steps) if isinstance(size, jax.Array) else self.steps)
        epochs = self.epochs
        if callable(epochs):
            if self.max_epochs is None:
                raise ValueError("epochs is a schedule: set max_epochs to the largest value that it takes")
            epochs = jnp.asarray(epochs(round), jnp.int32)
        return self.batches.steps(size, epochs)

    def __call__(
        self, params, c: core.Client, rule: Rule = sgd, *, grad=False, carry=(), on_step=None, optimizer=None
    ) -> Local:
        """Trains from `params` on the client's examples.

        Args:
          params: the model to start from.
          rule: computes steps from gradients (fedwin.rules).
          grad: also return the mean raw gradient along the path.
          carry: the initial carry of `on_step` and of the rule (Step.carry).
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
            s = Step(loop.params, params, batch, key, j, float_steps, lr, decay, loop.carry)
            output = rule(self.gradient_at(loop.stats, batch, key, c.info), s)
            new, optimizer = self.apply_step(s, output.direction, output.displacement, loop.optimizer)
            recorded = output.gradient
            total = tree.add(loop.total, recorded.value) if grad else None
            carry = loop.carry if output.carry is None else output.carry
            if on_step is not None:
                carry, new = on_step(carry, new, s, (j + 1) % per_pass == 0)
            count = batches.count(batch)
            loss = loop.loss + recorded.loss * count
            return _Loop(new, optimizer, recorded.stats, total, carry, loss, loop.seen + count)

        zero = jnp.zeros((), lr.dtype)
        total = tree.at_least_float32(tree.zeros_like(params)) if grad else None
        optimizer = self.optimizer.init(params) if optimizer is None else optimizer
        end = lax.fori_loop(0, steps, body, _Loop(params, optimizer, c.stats, total, carry, zero, zero))
        mean = tree.like(params, tree.scale(1 / jnp.maximum(float_steps, 1), end.total)) if grad else None
        y = self.bound(params, end.params)
        metrics = {"loss": core.Mean(end.loss, end.seen)}
        return Local(y, float_steps, lr, mean, end.carry, end.stats, metrics, end.optimizer)

    def gradient(self, params, c: core.Client):
        """Computes the gradient (1/N) sum_n grad f(params; x_n) of all local examples, like params.

        One pass in stored order, with the training-time preprocessing.
        """
        gradient = lambda batch, key: jax.grad(lambda p: self._value(p, c.stats, batch, key, c.info)[0])(params)
        zeros = tree.at_least_float32(tree.zeros_like(params))
        return tree.like(params, self._mean_of_batches(c, 2, gradient, zeros))

    def mean_loss(self, params, c: core.Client):
        """Computes the loss (1/N) sum_n f(params; x_n) of all local examples, float [], in one pass like `gradient`."""
        loss = lambda batch, key: self._value(params, c.stats, batch, key, c.info)[0]
        return self._mean_of_batches(c, 3, loss, jnp.zeros((), self.rate(c.round).dtype))

    def _mean_of_batches(self, c: core.Client, tag: int, value: Callable, zero):
        """Returns the mean over the client's examples of value(batch, key), itself a mean over a batch."""
        batches = self.batches
        positions, steps = batches.one_pass(c)
        key = jax.random.fold_in(c.key, tag)

        def body(j, total):
            augment_key, step_key = jax.random.split(jax.random.fold_in(key, j))
            batch = batches.take(c, positions, j)
            share = batches.count(batch).astype(float) / jnp.maximum(c.size, 1)
            return tree.axpy(share, value(self.prepare(batch, augment_key), step_key), total)

        return lax.fori_loop(0, steps, body, zero)

    def _value(self, params, stats, batch, key, info):
        value, new_stats = self.loss(params, stats, batch, key, info)
        if self.wd_in_loss:
            value = value + 0.5 * self.weight_decay * tree.squared_norm(params)
        return value, new_stats

    def gradient_at(self, stats, batch, key, info) -> Callable[[PyTree], Gradient]:
        """Returns params -> Gradient of the loss on a prepared batch; `key` is that of the forward pass."""

        def gradient(at) -> Gradient:
            (loss, new_stats), g = jax.value_and_grad(self._value, has_aux=True)(at, stats, batch, key, info)
            return Gradient(g, loss, new_stats)

        return gradient

    def apply_step(self, s: Step, direction, displacement, state):
        """Takes one step from s.params, with the solver's clipping, weight decay and optimizer.

        Returns:
          (params after the step, the optimizer's new state).
        """
        fixed = None if self.frozen is None else self.frozen(s)
        moving = lambda x: x if fixed is None else tree.map(jnp.where, fixed, tree.zeros_like(x), x)
        direction = moving(direction)
        if self.clip_norm is not None:
            norm = tree.norm(direction)
            direction = tree.scale(jnp.minimum(1.0, self.clip_norm / jnp.maximum(norm, 1e-12)), direction)
        if s.weight_decay:
            direction = tree.axpy(s.weight_decay, moving(s.params), direction)
        updates, state = self.optimizer.update(direction, state, s.params)
        new = tree.axpy(s.lr, updates, s.params)
        new = new if displacement is None else tree.add(new, displacement)
        # Again, because momentum and decoupled decay move what has no direction.
        return (new if fixed is None else tree.map(jnp.where, fixed, s.params, new)), state
