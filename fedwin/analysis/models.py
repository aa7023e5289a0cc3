"""Models and arrays on the host: checked, in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from fedwin.core import Variables
from fedwin.errors import UserError


def array(name: str, values, *dimensions: int) -> np.ndarray:
    """Returns `values` in float64.

    Args:
      name: what they are, for the error line.
      values: an array or nested lists.
      dimensions: how many axes they may have; none for any number.

    Raises:
      UserError: unless they are numbers, at least one, with so many axes.
    """
    try:
        out = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name}: not a rectangular array of numbers.") from None
    if not out.size or (dimensions and out.ndim not in dimensions):
        wanted = " or ".join(map(str, dimensions)) or "any number of"
        raise UserError(
            f"{name}: an array of shape {out.shape} where a filled one with {wanted} dimension(s) is needed."
        )
    return out


def check_alike(models) -> None:
    """Raises UserError unless all models have the first one's structure and shapes."""
    structure = lambda model: (jax.tree.structure(model), [np.shape(leaf) for leaf in jax.tree.leaves(model)])
    if not models or not jax.tree.leaves(models[0]):
        raise UserError("no model, or one without arrays, where models are compared.")
    for i, model in enumerate(models):
        if structure(model) != structure(models[0]):
            raise UserError(f"model {i} differs from model 0 in structure or shapes; compare models of one network.")


def _is_float(leaf) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def vector(model) -> np.ndarray:
    """Returns the trained parameters of a model in one vector [P]: params of Variables, all leaves of other trees."""
    params = model.params if isinstance(model, Variables) else model
    leaves = [np.asarray(leaf).astype(np.float64).ravel() for leaf in jax.tree.leaves(params) if _is_float(leaf)]
    return np.concatenate(leaves) if leaves else np.zeros(0)


def mix(coefficients, models):
    """Returns an affine combination of models, statistics included: sum_i c_i w_i.

    A coefficient of 1 beside zeros returns that very model. Otherwise leaves that are not floats (counters) are the
    first model's; every leaf keeps its dtype. mix([1/3, 1/3, 1/3], models) is a plain mean.

    >>> import numpy as np
    >>> mix([0.25, 0.75], [{"w": np.zeros(2)}, {"w": np.ones(2)}])["w"].tolist()
    [0.75, 0.75]

    Args:
      coefficients: c [n].
      models: n trees of one structure.

    Raises:
      UserError: when there is not one coefficient per model, or models differ in structure.
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
    """Joins what `evaluate` returned for several models: a list of trees of numbers -> one tree of float64 arrays."""
    return jax.tree.map(lambda *values: np.asarray(values, np.float64), *results)
