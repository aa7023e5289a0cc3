"""Clipping of what clients send."""

import jax.numpy as jnp

from fedwin import core, tree
from fedwin.errors import UserError
from fedwin.wrappers.base import WRAPPERS, Wrapper, only_round_trip


@WRAPPERS.register("clip")
def clip(setting, *, norm) -> Wrapper:
    """Bounds every client's step: delta_i <- delta_i min(1, norm / ||delta_i||), one norm over all parameters.

    Args:
      norm: the bound, > 0.

    Raises UserError for norm <= 0, or where clients send no mean step.
    """
    if isinstance(norm, bool) or not isinstance(norm, (int, float)) or not norm > 0:
        raise UserError(f"clip: norm={norm} must be a number > 0.")

    def clipped(phase):
        def client(down, c):
            update = phase.client(down, c)
            mean = update.message.get("delta") if isinstance(update.message, dict) else None
            if not isinstance(mean, core.Mean):
                raise UserError("clip: clients of this algorithm send no mean step.")
            # The message is delta times its weight, hence the bound times the weight.
            factor = jnp.minimum(1.0, norm * mean.weight / jnp.maximum(tree.norm(mean.total), 1e-12))
            bounded = mean._replace(total=tree.scale(factor, mean.total))
            return update._replace(message=update.message | {"delta": bounded})

        return phase._replace(client=client)

    def wrap(algorithm):
        only_round_trip(algorithm, "clip")
        return algorithm._replace(phases=tuple(clipped(phase) if phase.client else phase for phase in algorithm.phases))

    return Wrapper("clip", wrap)
