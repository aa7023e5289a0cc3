"""Checked float64 arrays, and affine combinations of models: one on the host, many in one compiled program."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.registry.ranges import PositiveInt, check_values


def array(name: str, values, *dimensions: int) -> np.ndarray:
    """Returns `values` as a float64 array.

    Args:
      values: an array or nested lists.
      dimensions: allowed numbers of axes; none for any number.

    Raises:
      UserError: unless `values` are numbers, at least one, with an allowed number of axes.
    """
    try:
        out = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name}: not a rectangular array of numbers.") from None
    if not out.size or (dimensions and out.ndim not in dimensions):
        wanted = " or ".join(map(str, dimensions)) or "any number of"
        raise UserError(f"{name}: an array of shape {out.shape}; it must be non-empty and have {wanted} dimension(s).")
    return out


def check_alike(models) -> None:
    """Checks that all models have the structure and shapes of the first one.

    Args:
      models: Variables or trees.

    Raises:
      UserError: when they differ, or there is none.
    """
    structure = lambda model: (jax.tree.structure(model), [np.shape(leaf) for leaf in jax.tree.leaves(model)])
    if not models or not jax.tree.leaves(models[0]):
        raise UserError("there is no model to compare, or it has no arrays.")
    for i, model in enumerate(models):
        if structure(model) != structure(models[0]):
            raise UserError(f"model {i} differs from model 0 in structure or shapes; compare models of one network.")


def _is_float(leaf) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def vector(model) -> np.ndarray:
    """Returns the trained parameters of a model as one vector.

    Args:
      model: Variables, whose params count, or another tree, all of whose float leaves count.

    Returns:
      float64 [P].
    """
    params = model.params if isinstance(model, Variables) else model
    leaves = [np.asarray(leaf).astype(np.float64).ravel() for leaf in jax.tree.leaves(params) if _is_float(leaf)]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def mix(coefficients, models):
    """Returns an affine combination of models, statistics included; mix([1/3, 1/3, 1/3], models) is a plain mean.

        sum_i c_i w_i

    A coefficient of 1 among zeros returns that model itself. Otherwise leaves that are not floats (counters) are taken
    from the first model; every leaf keeps its dtype.

    Args:
      coefficients: c [n].
      models: n trees of one structure.

    Raises:
      UserError: when there is not one coefficient per model, or models differ in structure.

    Example:
      >>> import numpy as np
      >>> mix([0.25, 0.75], [{"w": np.zeros(2)}, {"w": np.ones(2)}])["w"].tolist()
      [0.75, 0.75]
    """
    coefficients = array("mix: coefficients", coefficients, 1)
    if len(coefficients) != len(models):
        raise UserError(f"mix: {len(coefficients)} coefficient(s) for {len(models)} model(s).")
    check_alike(models)
    used = np.flatnonzero(coefficients)
    if len(used) == 1 and coefficients[used[0]] == 1:
        return models[used[0]]

    def combined(*leaves):
        if not _is_float(leaves[0]):
            return leaves[0]
        parts = (coefficients[i] * np.asarray(leaves[i]).astype(np.float64) for i in used)
        return sum(parts, np.zeros(np.shape(leaves[0]))).astype(np.asarray(leaves[0]).dtype)

    return jax.tree.map(combined, *models)


# Rows that are evaluated at once on accelerators, which a single small network does not fill.
CHUNK = 16


def mixtures(models: Sequence, coefficients, evaluate: Callable, *arguments, chunk: int | None = None):
    """Evaluates many mixtures of models with one compilation and one dispatch.

        w(c) = sum_i c_i w_i for every row c

    Mixtures are computed on the device, one chunk at a time, so that a plane of a thousand points needs the memory of
    `chunk` models. A row with a single 1 evaluates that model, to the bit. Leaves that are not floats (counters) are
    taken from the first model.

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
    rows = array("mixtures: coefficients", coefficients, 2)
    check_alike(models)
    check_values("mixtures", PositiveInt | None, chunk=chunk)
    if rows.shape[1] != len(models):
        raise UserError(f"mixtures: rows of {rows.shape[1]} coefficient(s) for {len(models)} model(s).")
    if chunk is None:
        chunk = 1 if jax.default_backend() == "cpu" else CHUNK
    for number, model in enumerate(models):
        # 0 * inf is NaN: one diverged model would make every row NaN.
        if not np.isfinite(vector(model)).all():
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
