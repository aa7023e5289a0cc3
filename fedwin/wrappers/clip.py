"""Clipping of the norm of the clients' steps."""

from fedwin import core, tree
from fedwin.errors import UserError
from fedwin.registry.ranges import Positive
from fedwin.wrappers.base import WRAPPERS, Wrapper, single_round_trip
from fedwin.wrappers.messages import check_not_private, parts_that, step_of


def _checked_phase(phase: core.Phase) -> core.Phase:
    """Returns the phase, which raises UserError on tracing if a client sends something that clipping does not bound."""

    def client(down, c):
        update = phase.client(down, c)
        check_not_private("clip", update.message)
        step_of("clip", update.message, whole=True)
        bounded = (core.MeanStep, core.DerivedFromStep)
        unbounded = parts_that(update.message, lambda node: not isinstance(node, bounded))
        if unbounded:
            raise UserError(
                f"clip: clients of this algorithm also send {', '.join(unbounded)}, which a bound on the step does not "
                f"bound; omit --wrap=clip (in your own method, mark values computed from the step alone with "
                f"core.DerivedFromStep)."
            )
        return update

    return phase._replace(client=client)


@WRAPPERS.register("clip")
def clip(setting: core.Setting, *, norm: Positive) -> Wrapper:
    """Bounds every client's step d_i = y_i - x: y_i <- x + d_i min(1, norm / ||d_i||), one norm over all parameters.

    y_i is bounded when local training returns it, and with it everything that the algorithm derives from it: all sums
    that reach the server (FedDyn's second one, FedGMA's signs) and the client's state (FedDyn's q_i, AdaBest's h_i,
    FedHBM's a_i). Not bounded are model statistics (BatchNorm's) and metrics, which are not part of the step, and what
    `topk` and `quantize` add to it: residuals and rounding. A part that stays `local` counts toward the norm and is
    bounded. Algorithms whose clients send anything else are rejected: SCAFFOLD's controls are mean gradients, MIME
    sends gradients, and FedFA's anchors are features. Clients apply the bound, before an attacker changes what it
    sends; the server's bound is `--aggregate=norm_bound`.

    Args:
      norm: the bound on the norm.

    Raises:
      UserError: when clients send no mean step, or something that is not derived from it.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", wrappers=["clip:norm=0.5"])
      {'model': [6.821, 6.682, 6.573]}
    """

    def bound(start, y):
        step = tree.sub(y, start)
        size = tree.norm(step)
        # where instead of min(1, ...): a step within the bound stays bitwise the same.
        return tree.where(size > norm, tree.axpy(norm / size, step, start), y)

    def wrap(algorithm):
        single_round_trip(algorithm, "clip")
        return core.with_client_phases(_checked_phase, algorithm)

    return Wrapper("clip", wrap, bound=bound)
