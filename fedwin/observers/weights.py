"""Weights of the models in a window, by age: those of a learning-rate decay, or given numbers."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from fedwin.errors import UserError

# Name -> (age k, models n) -> c_k = f((n-1-k)/n) - f((n-k)/n) for a decay f from 1 to 0, without its cancellation.
WEIGHTS = {
    "uniform": lambda k, n: jnp.ones_like(k) / n,
    "linear": lambda k, n: jnp.ones_like(k) / n,
    "cosine": lambda k, n: jnp.sin(jnp.pi / (2 * n)) * jnp.sin(jnp.pi * (2 * (n - k) - 1) / (2 * n)),
    "inverse_sqrt": lambda k, n: 1 / (jnp.sqrt(n * (n - k)) + jnp.sqrt(n * jnp.maximum(n - k - 1, 0))),
    "quadratic": lambda k, n: (2 * (n - k) - 1) / n**2,
}

# A name of WEIGHTS, or the weights c_0 .. c_{W-1}, newest first, as numbers or as a text such as '3-2-1'.
Weights = str | Sequence[float]


def parse_weights(weights: Weights, window: int) -> str | tuple[float, ...]:
    """Returns the weights of a window of W models as a name, 'uniform' for its synonym 'linear', or as W numbers.

    Raises:
      UserError: an unknown name, a wrong number of weights, one that is not finite, or a sum of 0.

    Example:
      >>> parse_weights("linear", 20), parse_weights("3-2-1", 3)
      ('uniform', (3.0, 2.0, 1.0))
    """
    if isinstance(weights, str) and weights in WEIGHTS:
        return "uniform" if weights == "linear" else weights
    try:
        found = tuple(float(c) for c in (weights.split("-") if isinstance(weights, str) else weights))
    except (TypeError, ValueError):
        names = ", ".join(WEIGHTS)
        raise UserError(
            f"wima: weights={weights!r} must be one of {names}, or {window} numbers such as 3-2-1."
        ) from None
    if len(found) != window:
        raise UserError(f"wima: weights={weights!r} are {len(found)} numbers for window={window}; give one per model.")
    if not np.isfinite(found).all() or not np.isfinite(1 / np.float64(sum(found) or np.nan)):
        raise UserError(f"wima: weights={weights!r} must be finite numbers whose sum is not 0.")
    return found


def age_weights(weights: str | tuple[float, ...], window: int, filled, dtype):
    """Returns c_0 .. c_{W-1} of a window that holds n <= W models, [W]; they sum to 1 and are 0 without a model.

    Numbers are divided by the sum of the first n; if that is 0, the newest model has all the weight.

    Args:
      weights: the result of `parse_weights`.
      filled: n, int32 [].
    """
    ages = jnp.arange(window)
    if isinstance(weights, str):
        values = WEIGHTS[weights](ages.astype(dtype), filled.astype(dtype))
        return jnp.where(ages < filled, values, 0)
    values = jnp.where(ages < filled, jnp.asarray(weights[:window], dtype), 0)
    total = values.sum()
    return jnp.where(total == 0, (ages == 0).astype(dtype), values / jnp.where(total == 0, 1, total))
