"""Checked float64 arrays, and affine combinations of models on the host."""

import jax
import jax.numpy as jnp
import numpy as np

from fedwin.core import Variables
from fedwin.errors import UserError


def array(name: str, values, *dimensions: int) -> np.ndarray:
    """Returns `values` as a float64 array.

    Args:
      name: of the values, for error messages.
      values: an array or nested lists.
      dimensions: allowed numbers of axes; none for any number.

    Returns:
      The array.

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

    Example:
      >>> import numpy as np
      >>> vector({"b": np.ones(1), "w": np.zeros((1, 2))}).tolist()
      [1.0, 0.0, 0.0]
    """
    params = model.params if isinstance(model, Variables) else model
    leaves = [np.asarray(leaf).astype(np.float64).ravel() for leaf in jax.tree.leaves(params) if _is_float(leaf)]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def mix(coefficients, models):
    """Returns an affine combination of models, statistics included; mix([1/3, 1/3, 1/3], models) is a plain mean.

        sum_i c_i w_i

    A single coefficient of 1 among zeros returns that very model. Otherwise leaves that are not floats (counters) are
    taken from the first model; every leaf keeps its dtype.

    Args:
      coefficients: c [n].
      models: n trees of one structure.

    Returns:
      A model like the first one.

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
        return jnp.asarray(sum(parts, np.zeros(np.shape(leaves[0]))), jnp.result_type(leaves[0]))

    return jax.tree.map(combined, *models)


def stacked(results):
    """Stacks the results of `evaluate` for several models.

    Args:
      results: a list of trees of numbers.

    Returns:
      One tree of float64 arrays with a leading axis.
    """
    return jax.tree.map(lambda *values: np.asarray(values, np.float64), *results)
