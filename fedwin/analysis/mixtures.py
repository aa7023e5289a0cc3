"""Many mixtures of a few models, made and evaluated in one compiled program."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedwin.analysis import models as checked
from fedwin.errors import UserError

# Rows side by side where a single small network leaves a device idle.
CHUNK = 16


def mixtures(models: Sequence, coefficients, evaluate: Callable, *arguments, chunk: int | None = None):
    """Evaluates w(c) = sum_i c_i w_i for every row c; one compilation and one dispatch, whatever the number of rows.

    Mixtures are made on the device where they are evaluated, one chunk at a time, so that a plane of a thousand points
    needs the memory of `chunk` models. A row with a single 1 evaluates that very model. Leaves that are not floats
    (counters) are the first model's.

    >>> import numpy as np
    >>> two = [{"w": np.zeros(2, np.float32)}, {"w": np.ones(2, np.float32)}]
    >>> mixtures(two, [[1, 0], [0.5, 0.5], [0, 1]], lambda model: (model["w"] ** 2).sum()).tolist()
    [0.0, 0.5, 2.0]

    Args:
      models: w, a list of m Variables or trees of one network, all finite.
      coefficients: c [n, m].
      evaluate: (model, *arguments) -> tree of numbers; it is traced.
      *arguments: trees of arrays for `evaluate`, such as batches of examples.
      chunk: rows that are evaluated side by side (vmapped); None: CHUNK, but one by one on CPUs, where a network
        fills the cores by itself and several convolutions at once are slower.

    Returns:
      The tree of `evaluate` with a leading axis, float64 [n].

    Raises:
      UserError: when models are of several networks or not finite, there is not one coefficient per model in every row,
        or chunk is below 1.
    """
    rows = checked.array("mixtures: coefficients", coefficients, 2)
    checked.check_alike(models)
    if rows.shape[1] != len(models):
        raise UserError(f"mixtures: rows of {rows.shape[1]} coefficient(s) for {len(models)} model(s).")
    if chunk is None:
        chunk = 1 if jax.default_backend() == "cpu" else CHUNK
    if chunk < 1:
        raise UserError(f"mixtures: chunk={chunk}; at least 1 row at a time.")
    for number, model in enumerate(models):
        # 0 * inf is NaN: a model that diverged would spoil all the others' points.
        if not np.isfinite(checked.vector(model)).all():
            raise UserError(f"mixtures: model {number} is not finite; take models from before the run diverged.")
    chunk = min(chunk, len(rows))
    padded = np.concatenate([rows, np.repeat(rows[:1], -len(rows) % chunk, 0)])
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *models)

    def mixed(row, stacked):
        def combined(leaf):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                return leaf[0]
            # Not a dot product: whatever its precision is set to, 1 w_1 + 0 w_2 must be w_1.
            terms = (leaf[i].astype(row.dtype) * row[i] for i in range(len(models)))
            return sum(terms, jnp.zeros(leaf.shape[1:], row.dtype)).astype(leaf.dtype)

        return jax.tree.map(combined, stacked)

    @jax.jit
    def program(rows, stacked, arguments):
        one = lambda row: evaluate(mixed(row, stacked), *arguments)
        return jax.lax.map(one, rows, batch_size=chunk if chunk > 1 else None)

    found = jax.device_get(program(jnp.asarray(padded, float), stacked, arguments))
    return jax.tree.map(lambda values: np.asarray(values, np.float64)[: len(rows)], found)
