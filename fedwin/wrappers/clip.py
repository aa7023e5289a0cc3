"""Clipping of the clients' steps."""

import jax

from fedwin import core, tree
from fedwin.errors import UserError
from fedwin.registry import checks
from fedwin.wrappers.base import WRAPPERS, Wrapper, single_round_trip


def _parts_beside_the_step(message) -> list[str]:
    """Returns the names of the parts of a message that do not follow from the client's step."""
    follows = lambda x: isinstance(x, (core.MeanStep, core.DerivedFromStep))
    leaves = jax.tree_util.tree_leaves_with_path(message, is_leaf=follows)
    return sorted({jax.tree_util.keystr(path[:1]).strip("[]") for path, x in leaves if not follows(x)})


def _checked(phase: core.Phase) -> core.Phase:
    """Returns the phase, which raises UserError when it is traced if a client sends what has no bound."""

    def client(down, c):
        update = phase.client(down, c)
        if core.mean_step_of(update.message) is None:
            raise UserError("clip: clients of this algorithm send no mean step, so a bound on it bounds nothing.")
        unbounded = _parts_beside_the_step(update.message)
        if unbounded:
            raise UserError(
                f"clip: beside their mean step, clients of this algorithm send {', '.join(unbounded)}, which a bound "
                f"on the step does not bound; omit --wrap=clip (in your own method, core.DerivedFromStep marks what follows "
                f"from the step)."
            )
        return update

    return phase._replace(client=client)


@WRAPPERS.register("clip")
def clip(setting, *, norm) -> Wrapper:
    """Bounds every client's step d_i = y_i - x: y_i <- x + d_i min(1, norm / ||d_i||), one norm over all parameters.

    y_i is bounded where local training returns it. Everything that the algorithm makes of it follows: all sums that
    reach the server (FedDyn's second one, FedGMA's signs), and what stays with the client (FedDyn's q_i, AdaBest's
    h_i, FedHBM's a_i). Model statistics (BatchNorm's) and metrics are no part of the step and have no bound. Clients
    that send anything else are refused: SCAFFOLD's controls are mean gradients, MIME's gradients are gradients, and
    FedFA's anchors are features.

    Args:
      norm: the bound, > 0.

    Raises:
      UserError: when norm <= 0, or clients send no mean step, or more than follows from it.
    """
    checks.number("clip", 0, open_least=True, norm=norm)

    def bound(start, y):
        step = tree.sub(y, start)
        size = tree.norm(step)
        # where, not min(1, ...): a step within the bound stays what it is, to the bit.
        return tree.where(size > norm, tree.axpy(norm / size, step, start), y)

    def wrap(algorithm):
        single_round_trip(algorithm, "clip")
        phases = (_checked(phase) if phase.client else phase for phase in algorithm.phases)
        return algorithm._replace(phases=tuple(phases))

    return Wrapper("clip", wrap, bound=bound)
