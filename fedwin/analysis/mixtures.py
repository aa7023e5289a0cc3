"""Evaluates many mixtures of a few models in one compiled program."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedwin.analysis import models as checked
from fedwin.errors import UserError

# Rows that are evaluated at once on accelerators, which a single small network does not fill.
CHUNK = 16


def mixtures(models: Sequence, coefficients, evaluate: Callable, *arguments, chunk: int | None = None):
    """Evaluates many mixtures of models with one compilation and one dispatch.

        w(c) = sum_i c_i w_i for every row c

    Mixtures are computed on the device, one chunk at a time, so that a plane of a thousand points needs the memory of
    `chunk` models. A row with a single 1 evaluates bitwise that model. Leaves that are not floats (counters) are taken
    from the first model.

    Args:
      models: w, a list of m Variables or trees of one network, all finite.
      coefficients: c [n, m].
      evaluate: (model, *arguments) -> tree of numbers; it is traced.
      *arguments: trees of arrays for `evaluate`, such as batches of examples.
      chunk: rows that are evaluated at once (vmapped); None: CHUNK, but 1 on CPUs, where one network uses all cores and
        several convolutions at once are slower.

    Returns:
      The tree of `evaluate` with a leading axis, float64 [n].

    Raises:
      UserError: when models are of different networks or not finite, a row does not have one coefficient per model, or
        chunk is below 1.

    Example:
      >>> import numpy as np
      >>> two = [{"w": np.zeros(2, np.float32)}, {"w": np.ones(2, np.float32)}]
      >>> mixtures(two, [[1, 0], [0.5, 0.5], [0, 1]], lambda model: (model["w"] ** 2).sum()).tolist()
      [0.0, 0.5, 2.0]
    """
    rows = checked.array("mixtures: coefficients", coefficients, 2)
    checked.check_alike(models)
    if rows.shape[1] != len(models):
        raise UserError(f"mixtures: rows of {rows.shape[1]} coefficient(s) for {len(models)} model(s).")
    if chunk is None:
        chunk = 1 if jax.default_backend() == "cpu" else CHUNK
    if chunk < 1:
        raise UserError(f"mixtures: chunk={chunk} must be at least 1.")
    for number, model in enumerate(models):
        # 0 * inf is NaN: one diverged model would make every row NaN.
        if not np.isfinite(checked.vector(model)).all():
            raise UserError(f"mixtures: model {number} is not finite; take models from before the run diverged.")
    chunk = min(chunk, len(rows))
    padded = np.concatenate([rows, np.repeat(rows[:1], -len(rows) % chunk, 0)])
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *models)

    def mixed(row, stacked):
        def combined(leaf):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                return leaf[0]
            # Not a dot product: 1 w_1 + 0 w_2 must be w_1 at any matmul precision.
            terms = (leaf[i].astype(row.dtype) * row[i] for i in range(len(models)))
            return sum(terms, jnp.zeros(leaf.shape[1:], row.dtype)).astype(leaf.dtype)

        return jax.tree.map(combined, stacked)

    @jax.jit
    def program(rows, stacked, arguments):
        evaluate_row = lambda row: evaluate(mixed(row, stacked), *arguments)
        return jax.lax.map(evaluate_row, rows, batch_size=chunk if chunk > 1 else None)

    values = jax.device_get(program(jnp.asarray(padded, float), stacked, arguments))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[: len(rows)], values)
