"""Differentially private federated averaging: clipped steps, and Gaussian noise on their sum."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, tree
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegative, Positive, Range, Share, check_values
from fedwin.tree import PyTree
from fedwin.wrappers.accounting import Accountant, Neighbors, Privacy
from fedwin.wrappers.base import WRAPPERS, Wrapper, single_round_trip, with_own_state
from fedwin.wrappers.messages import ClippedStep, check_not_private, parts_that, step_of

# Separates the key of the noise from others that are made of a run's initial key.
TAG = 0x4450


class PrivateMessage(NamedTuple):
    """The message of a client.

    Attributes:
      parts: the algorithm's message with its ClippedStep.
      within: 1/2 if the step was within the norm, else -1/2, []; None if the norm is constant.
    """

    parts: PyTree
    within: jax.Array | None


class NoiseState(NamedTuple):
    """State of the server.

    Attributes:
      key: data of the PRNG key of the noise, uint32 [2].
      norm: the norm that steps are clipped to, []; None if it is constant.
    """

    key: jax.Array
    norm: jax.Array | None


def clipped(step, norm):
    """Returns a step clipped to a norm, and whether it was within; a step that is not finite becomes 0.

        d min(1, norm / ||d||)

    Example:
      >>> step, within = clipped({"x": jnp.array([3.0, 4.0])}, 1.0)
      >>> [round(float(x), 3) for x in step["x"]], bool(within)
      ([0.6, 0.8], False)
    """
    size = tree.norm(step)
    within = size <= norm
    scaled = tree.where(within, step, tree.scale(norm / size, step))
    # Without a bound on every step there is no guarantee.
    return tree.where(jnp.isfinite(size), scaled, tree.zeros_like(step)), within


class Clipping(NamedTuple):
    """How steps are clipped, and how much noise their sum gets.

    Attributes:
      norm: the norm, or the first one if it is adapted.
      noise: standard deviation of the noise on the sum, divided by the norm.
      expected: number of clients that the sum is divided by.
      quantile: quantile of the steps' norms that the norm follows; None: it is constant.
      rate: learning rate of the norm.
      bit_noise: standard deviation of the noise on the number of steps within the norm.
    """

    norm: float
    noise: float
    expected: float
    quantile: float | None
    rate: float
    bit_noise: float

    @property
    def adapts(self) -> bool:
        """Whether the norm changes over the rounds."""
        return self.quantile is not None

    def adapted(self, norm, within, key):
        """Returns the norm of the next round; `within` is the sum of b_i - 1/2 over the cohort, [].

        norm <- norm exp(-rate (share - quantile)),   share = (sum_i (b_i - 1/2) + N(0, bit_noise^2)) / n + 1/2
        """
        share = (within + self.bit_noise * jax.random.normal(key, (), within.dtype)) / self.expected + 0.5
        return norm * jnp.exp(-self.rate * (share - self.quantile))


def noise_of_the_sum(noise: float, bit_noise: float) -> float:
    """Returns the sum's noise multiplier with which sum and bits together are as private as with `noise` alone.

    Example:
      >>> round(noise_of_the_sum(1.0, 1.0), 4)
      1.1547
    """
    return (noise**-2 - (2 * bit_noise) ** -2) ** -0.5 if noise else 0.0


def _check_message(update: core.Update) -> None:
    """Raises UserError if a client sends anything but its step."""
    check_not_private("dp", update.message)
    step_of("dp", update.message)
    if others := parts_that(update.message, lambda node: not isinstance(node, core.MeanStep)):
        raise UserError(
            f"dp: clients of this algorithm also send {', '.join(others)}, to which no noise is added; choose one "
            f"whose clients send their step alone, such as fedavg, fedprox or fedadam."
        )
    if not tree.is_empty(update.stats):
        raise UserError(
            "dp: BatchNorm's statistics are averaged without noise; choose a model without them, such as one with "
            "group normalization."
        )


def _private_phase(phase: core.Phase, clipping: Clipping, num_clients: int) -> core.Phase:
    """Returns a phase, on a state whose `own` is NoiseState, with clipped steps and noise on their sum."""

    def broadcast(params, state):
        down = phase.broadcast(params, state)
        return (down, state.own.norm) if clipping.adapts else down

    received = lambda down: down if clipping.adapts else (down, clipping.norm)

    def client(down, c):
        down, norm = received(down)
        # The share of all examples depends on the other clients.
        update = phase.client(down, c._replace(weight=jnp.full_like(c.weight, 1 / num_clients)))
        _check_message(update)
        step, within = clipped(core.mean_step_of(update.message).value, norm)
        parts = core.map_mean_steps(lambda sent: ClippedStep(step), update.message)
        return update._replace(message=PrivateMessage(parts, within - 0.5 if clipping.adapts else None))

    def as_means(parts, function):
        weight = jnp.asarray(clipping.expected, float)
        return tree.map_nodes(lambda step: core.MeanStep(function(step.value), weight), parts, ClippedStep)

    def server(params, state, total, round):
        key = jax.random.fold_in(jax.random.wrap_key_data(state.own.key, impl="threefry2x32"), round)
        step_key, bit_key = jax.random.split(key)
        norm = state.own.norm if clipping.adapts else clipping.norm

        def noisy(step):
            return tree.add(step, tree.normal(step, step_key, clipping.noise * norm)) if clipping.noise else step

        params, state = phase.server(params, state, as_means(total.parts, noisy), round)
        if clipping.adapts:
            adapted = clipping.adapted(norm, total.within, bit_key)
            state = state._replace(own=state.own._replace(norm=adapted))
        return params, state

    def wire(down, message):
        inner, norm = received(down)
        inner, up = phase.wire(inner, as_means(message.parts, lambda step: step))
        if not clipping.adapts:
            return inner, up
        return (inner, norm), (up, jax.ShapeDtypeStruct((1,), jnp.uint8))

    return phase._replace(broadcast=broadcast, client=client, server=server, wire=wire)


def _check_cohorts(setting: core.Setting, neighbors: str) -> float:
    """Returns the expected number of clients that are drawn in a round; raises UserError if it can't be accounted."""
    if setting.most_rounds is None:
        raise UserError("dp: a FedJAX program draws its own cohorts, whose privacy is not accounted; use fedwin train.")
    sampler = setting.sampling
    rate = sampler.rate if sampler is not None else None
    if neighbors == "add_remove" and rate is None:
        raise UserError(
            "dp: accounting assumes cohorts that every client joins independently; set --sampling=poisson:rate=..., or "
            "dp:neighbors=replace_one for cohorts of a fixed size, drawn uniformly."
        )
    if neighbors == "replace_one" and not (sampler is None or sampler.fixed_size):
        raise UserError(
            "dp: neighbors=replace_one is the accounting of cohorts of a fixed size; set --sampling=uniform, or "
            "neighbors=add_remove for Poisson cohorts."
        )
    return setting.clients_per_round if sampler is None else sampler.expected


@WRAPPERS.register("dp", paper=("mcmahan2018learning", "andrew2021differentially"))
def dp(
    setting: core.Setting,
    *,
    clip: Positive,
    noise: NonNegative,
    delta: Annotated[float, Range(0, 1, open_least=True, open_most=True)] = 1e-5,
    quantile: Share | None = None,
    clip_lr: NonNegative = 0.2,
    bit_noise: Positive | None = None,
    neighbors: Neighbors = "add_remove",
    accountant: Accountant = "rdp",
) -> Wrapper:
    """Differentially private FedAvg: clips every client's step, and adds Gaussian noise to their sum.

        d_i <- d_i min(1, clip / ||d_i||),   d_i = y_i - x
        d = (sum_{i in S} d_i + N(0, (noise clip)^2 I)) / n,   n = E|S|

    The server continues with d in place of the mean step. The denominator n is constant, and an empty cohort also
    gets noise. With a `quantile`, clip follows that quantile of the norms: clients also send whether they were within
    it, and the noise on the sum grows to (noise^-2 - (2 bit_noise)^-2)^(-1/2) clip, so that both together are as
    private as with `noise` alone. The guarantee is client-level, for the server models of all rounds; averages of them
    (WIMA, EMA, SWA, IMA) and their accuracy on public data cost nothing. Weights by examples (set --weighting=uniform),
    statistics (BatchNorm's), and algorithms whose clients send more than their step are rejected. Name wrappers that
    change steps before dp. The noise is simulated: float32, and a function of the seed.

    Args:
      clip: norm that steps are clipped to; the initial norm if it is adapted.
      noise: noise multiplier, the standard deviation of the noise on the sum, divided by clip.
      delta: the delta of (epsilon, delta), below 1/K.
      quantile: quantile of the norms that clip follows; none = clip is constant.
      clip_lr: learning rate of clip.
      bit_noise: standard deviation of the noise on the number of steps within clip, > noise / 2; none = max(n / 20,
        noise).
      neighbors: 'add_remove' compares federations with and without a client, and needs Poisson cohorts; 'replace_one'
        replaces a client with another, and needs cohorts of a fixed size.
      accountant: accountant for the epsilon in metrics.jsonl, 'rdp' or 'pld'; the summary has both.

    Raises:
      UserError: when the privacy of the run cannot be accounted for.

    Source: McMahan et al., Learning Differentially Private Recurrent Language Models, 2018,
    https://arxiv.org/abs/1710.06963. Andrew et al., Differentially Private Learning with Adaptive Clipping, 2021,
    https://arxiv.org/abs/1905.03871.

    Example:
      >>> from fedwin import testing
      >>> private = "dp:clip=1,noise=0.1,neighbors=replace_one"
      >>> testing.run_rounds("fedavg:weighting=uniform", wrappers=[private])
      {'model': [6.099, 5.341, 4.755]}
    """
    check_values("dp", Range(0, 1 / setting.num_clients, open_most=True), delta=delta)
    if accountant == "pld" and neighbors == "replace_one":
        raise UserError("dp: accountant=pld needs Poisson cohorts; set accountant=rdp with neighbors=replace_one.")
    drawn = _check_cohorts(setting, neighbors)
    expected = setting.participation * setting.num_clients
    multiplier = noise
    if quantile is not None:
        bit_noise = max(expected / 20, noise) if bit_noise is None else bit_noise
        check_values("dp", Range(noise / 2, open_least=True), bit_noise=bit_noise)
        multiplier = noise_of_the_sum(noise, bit_noise)
    clipping = Clipping(clip, multiplier, expected, quantile, clip_lr, bit_noise or 0.0)

    def init(params, inner, key):
        own = jax.random.key_data(jax.random.fold_in(key, TAG))
        return NoiseState(own, jnp.asarray(clip, float) if clipping.adapts else None)

    def wrap(algorithm):
        single_round_trip(algorithm, "dp")
        if algorithm.weighting != "uniform":
            raise UserError("dp: weights by examples have no bound; set --weighting=uniform, or in core.algorithm.")
        private = lambda phase: _private_phase(phase, clipping, setting.num_clients)
        # Without noise, an empty cohort would be visible.
        return core.with_client_phases(private, with_own_state(algorithm, init))._replace(steps_without_clients=True)

    privacy = Privacy(noise, neighbors, setting.num_clients, drawn, delta, accountant)
    return Wrapper("dp", wrap, privacy=privacy)
