"""Clipping of what clients send."""

import jax.numpy as jnp

from fedwin import checks, core, tree
from fedwin.errors import UserError
from fedwin.wrappers.base import WRAPPERS, Wrapper, only_round_trip


@WRAPPERS.register("clip")
def clip(setting, *, norm) -> Wrapper:
    """Bounds every client's step: delta_i <- delta_i min(1, norm / ||delta_i||), one norm over all parameters.

    Args:
      norm: the bound, > 0.

    Raises:
      UserError: when norm <= 0, or clients send no mean step.
    """
    checks.number("clip", 0, open_least=True, norm=norm)

    def clipped(phase):
        def client(down, c):
            update = phase.client(down, c)
            mean = core.mean_step_of(update.message)
            if mean is None:
                raise UserError("clip: clients of this algorithm send no mean step.")
            # The message is delta times its weight, hence the bound times the weight.
            factor = jnp.minimum(1.0, norm * mean.weight / jnp.maximum(tree.norm(mean.total), 1e-12))
            bounded = mean._replace(total=tree.scale(factor, mean.total))
            return update._replace(message=core.with_mean_step(update.message, bounded))

        return phase._replace(client=client)

    def wrap(algorithm):
        only_round_trip(algorithm, "clip")
        return algorithm._replace(phases=tuple(clipped(phase) if phase.client else phase for phase in algorithm.phases))

    return Wrapper("clip", wrap)
