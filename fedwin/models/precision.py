"""The types that networks compute in."""

from typing import Any

import jax.numpy as jnp

from fedwin.errors import UserError

# Compute types. Parameters are float32, in float64 float64 (needs jax_enable_x64).
PRECISION = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float64": jnp.float64}


def compute_dtype(dtype: Any):
    """Returns the dtype of that name, or the floating-point dtype itself.

    >>> compute_dtype("bfloat16")
    dtype(bfloat16)

    Raises:
      UserError: when it is not a floating-point type.
    """
    try:
        found = jnp.dtype(dtype)
    except TypeError:
        found = None
    if found is None or not jnp.issubdtype(found, jnp.floating):
        raise UserError(f"dtype={dtype} must be one of {', '.join(PRECISION)}.")
    return found
