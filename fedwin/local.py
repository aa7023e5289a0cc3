"""Local training: what a client does with its examples between receiving and returning a model.

    y <- y - lr * optimiser(direction + weight_decay * y) + displacement,

where a *rule* (fedwin.rules) makes direction and displacement of the mini-batch gradient.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedwin import core, tree
from fedwin.rules import Step, mix, proximal, sgd, shift
from fedwin.schedules import exponential

__all__ = ["Local", "Solver", "Step", "exponential", "mix", "proximal", "sgd", "shift", "shuffled"]


class Local(NamedTuple):
    """What local training returns.

    params: y after the last step; steps: float [], J_i; lr: float []; grad: mean raw gradient along the path
    (1/J) sum_j g_j(y_j) if asked for, else (); carry: what the hook carried; stats: updated model statistics;
    metrics: {'loss': Mean over the examples that were seen}.
    """

    params: Any
    steps: Any
    lr: Any
    grad: Any
    carry: Any
    stats: Any
    metrics: Any


def _ceil_div(a, b):
    return (a + b - 1) // b


def shuffled(key, size, n_max: int):
    """Returns a uniform permutation of 0..size-1 in the first `size` of n_max places.

    It depends on (key, size) only, not on n_max (threefry draws are prefix-stable), so that the same client shuffles
    alike whatever cohort it is padded to.
    """
    bits = jax.random.bits(key, (n_max,), jnp.uint32)
    place = jnp.arange(n_max)
    last = jnp.where(place < size, bits, jnp.uint32(0xFFFFFFFF))
    return jnp.argsort(last, stable=True).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class Solver:
    """Local SGD over any optax optimiser; call it with (params, client, rule).

    Attributes:
      loss: (params, stats, batch, key, info) -> (mean loss over the batch, stats).
      lr: learning rate, or a schedule of the round (int32 [] -> float []).
      batch_size: B. epochs: E, or a schedule of the round that never exceeds max_epochs.
      batching: 'epoch' = J_i = E ceil(N_i / B) steps with a short (masked) last batch of every pass; 'repeat' =
        FedJAX's J_i = ceil(E N_i / B) full batches, which may straddle two passes.
      shuffle: False takes the examples in stored order.
      optimizer: an optax transformation at unit learning rate; its updates are multiplied by lr. Its state starts
        afresh on every client in every round.
      prepare: (batch, key) -> batch, normalisation and augmentation.
      weight_decay: lambda; wd_in_loss: add lambda/2 ||y||^2 to the loss instead of lambda y to the direction.
      clip_norm: bound of the global norm of the direction, before weight decay; None = no clipping.
      equal_size: N if every client has exactly N examples (the loops then have a static length), else None.
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

    def rate(self, round):
        """The client learning rate of a round."""
        return self.lr(round) if callable(self.lr) else jnp.asarray(self.lr, float)

    def _num_epochs(self, round):
        return jnp.asarray(self.epochs(round), jnp.int32) if callable(self.epochs) else int(self.epochs)

    def _num_steps(self, size, epochs):
        if self.batching == "epoch":
            return epochs * _ceil_div(size, self.batch_size)
        return _ceil_div(epochs * size, self.batch_size)

    def plan(self, c: core.Client):
        """Lays out the order in which examples are seen.

        Returns (positions int32 [L], steps): step j takes positions[j B : (j + 1) B], where -1 is an empty place.
        """
        n_max, batch = c.index.shape[0], self.batch_size
        size = c.size if self.equal_size is None else self.equal_size
        epochs = self._num_epochs(c.round)
        most = self.max_epochs or (epochs if isinstance(epochs, int) else None)
        if most is None:
            raise ValueError("epochs is a schedule: set max_epochs to the largest value that it takes")
        steps = self._num_steps(size, epochs)
        key = jax.random.fold_in(c.key, 0)
        place = jnp.arange(n_max)
        stride = _ceil_div(size, batch) * batch if self.batching == "epoch" else size
        if self.equal_size is None:
            # A client without examples (padding) takes no step; its stride must still not be 0.
            passes = _ceil_div(steps * batch, jnp.maximum(stride, 1))
        else:
            passes = _ceil_div(steps * batch, stride)

        def lay(q, positions):
            order = shuffled(jax.random.fold_in(key, q), size, n_max) if self.shuffle else place.astype(jnp.int32)
            row = jnp.where(place < size, order, -1)
            # Later passes overwrite the empty tail of earlier ones; the buffer is long enough never to clamp.
            return lax.dynamic_update_slice(positions, row, (q * stride,))

        length = most * (n_max + batch) + batch + n_max
        return lax.fori_loop(0, passes, lay, jnp.full((length,), -1, jnp.int32)), steps

    def _always_full(self) -> bool:
        return self.batching == "repeat" or (self.equal_size is not None and self.equal_size % self.batch_size == 0)

    def _batch(self, c: core.Client, positions, j):
        """The j-th batch; 'mask' (1 real, 0 empty) is left out where batches are always full."""
        taken = lax.dynamic_slice(positions, (j * self.batch_size,), (self.batch_size,))
        rows = c.index[jnp.maximum(taken, 0)]
        batch = {name: values[rows] for name, values in c.examples.items()}
        if not self._always_full():
            batch["mask"] = (taken >= 0).astype(jnp.float32)
        return batch

    def _value(self, params, stats, batch, key, info):
        value, new_stats = self.loss(params, stats, batch, key, info)
        if self.wd_in_loss:
            value = value + 0.5 * self.weight_decay * tree.squared_norm(params)
        return value, new_stats

    def _count(self, batch):
        return jnp.sum(batch["mask"]) if "mask" in batch else jnp.asarray(float(self.batch_size))

    def __call__(self, params, c: core.Client, rule=sgd, *, grad=False, carry=(), on_step=None) -> Local:
        """Trains from `params` on the client's examples.

        Args:
          params: the model to start from; c: the client; rule: turns gradients into steps.
          grad: also return the mean raw gradient along the path.
          carry, on_step: `on_step(carry, params, Step, last) -> (carry, params)` runs after every step; `last` says
            whether the step ended a local epoch.
        """
        positions, steps = self.plan(c)
        lr = self.rate(c.round)
        decay = 0.0 if self.wd_in_loss else self.weight_decay
        step_key = jax.random.fold_in(c.key, 1)
        float_steps = jnp.asarray(steps, lr.dtype)
        size = c.size if self.equal_size is None else self.equal_size
        per_epoch = _ceil_div(size, self.batch_size)

        def body(j, loop):
            params, opt_state, stats, total, carry, loss_sum, seen = loop
            augment_key, key = jax.random.split(jax.random.fold_in(step_key, j))
            batch = self.prepare(self._batch(c, positions, j), augment_key)
            first = []  # what the first gradient of the step saw; later ones (SAM, MIME) leave no trace

            def grad_fn(at):
                (value, new_stats), g = jax.value_and_grad(self._value, has_aux=True)(at, stats, batch, key, c.info)
                first.append((value, new_stats, g))
                return g

            s = Step(params, start, batch, key, j, float_steps, lr, decay)
            direction, displacement = rule(grad_fn, s)
            value, new_stats, raw = first[0]
            if self.clip_norm is not None:
                norm = tree.norm(direction)
                direction = tree.scale(jnp.minimum(1.0, self.clip_norm / jnp.maximum(norm, 1e-12)), direction)
            if decay:
                direction = tree.axpy(decay, params, direction)
            updates, opt_state = self.optimizer.update(direction, opt_state, params)
            new = tree.axpy(lr, updates, params)
            if displacement is not None:
                new = tree.add(new, displacement)
            if grad:
                total = tree.add(total, raw)
            if on_step is not None:
                carry, new = on_step(carry, new, s, (j + 1) % per_epoch == 0)
            count = self._count(batch)
            return new, opt_state, new_stats, total, carry, loss_sum + value * count, seen + count

        start = params
        zero = jnp.zeros((), lr.dtype)
        total = tree.zeros_like(params) if grad else ()
        loop = (params, self.optimizer.init(params), c.stats, total, carry, zero, zero)
        y, _, stats, total, carry, loss_sum, seen = lax.fori_loop(0, steps, body, loop)
        if grad:
            total = tree.scale(1 / jnp.maximum(float_steps, 1), total)
        return Local(y, float_steps, lr, total, carry, stats, {"loss": core.Mean(loss_sum, seen)})

    def gradient(self, params, c: core.Client):
        """Returns the gradient over all local examples at `params`: (1/N) sum_n grad f(params; x_n), one pass.

        The pass uses the training-time preprocessing, in stored order.
        """
        n_max, batch_size = c.index.shape[0], self.batch_size
        positions = jnp.where(jnp.arange(n_max + batch_size) < c.size, jnp.arange(n_max + batch_size), -1)
        steps = _ceil_div(c.size if self.equal_size is None else self.equal_size, batch_size)
        key = jax.random.fold_in(c.key, 2)

        def body(j, total):
            taken = lax.dynamic_slice(positions, (j * batch_size,), (batch_size,))
            rows = c.index[jnp.clip(taken, 0, n_max - 1)]
            mask = (taken >= 0).astype(jnp.float32)
            augment_key, step_key = jax.random.split(jax.random.fold_in(key, j))
            batch = {name: values[rows] for name, values in c.examples.items()} | {"mask": mask}
            batch = self.prepare(batch, augment_key)
            g = jax.grad(lambda p: self._value(p, c.stats, batch, step_key, c.info)[0])(params)
            share = jnp.sum(mask).astype(float) / jnp.maximum(c.size, 1)
            return tree.axpy(share, g, total)

        return lax.fori_loop(0, steps, body, tree.zeros_like(params))
