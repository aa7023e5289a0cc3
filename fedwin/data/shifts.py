"""Shifts of the clients' inputs (--client_shift), and drifts of all examples over rounds (--drift).

A shifted data set is fixed, the same in every epoch; a drift is a function of round and seed alone. Both change inputs
before augmentation and normalization; uint8 images are divided by 255.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates

from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry import Registry
from fedwin.registry.ranges import Finite, Positive, PositiveInt, PositiveShare, Range

Levels = Literal["drawn", "rising"]


class Shift(NamedTuple):
    """A change of a client's inputs.

    Attributes:
      largest: the largest level.
      levels: 'drawn' or 'rising'.
      change: (inputs [B, ...], level [], PRNG key of the client, positions in it [B]) -> inputs.
      needs_images: whether inputs must be images [H, W, C].
      signed: whether drawn levels may have either sign.
    """

    largest: float
    levels: str
    change: Callable
    needs_images: bool = True
    signed: bool = False

    def of_clients(self, count: int, seed: int, who: str = "seen") -> tuple[np.ndarray, np.ndarray]:
        """Returns the level, float32 [K], and the key data, uint32 [K, 2], of each client k = 1 ... K.

            level_k = largest k / K (rising), largest u_k (drawn);   u_k ~ U[0, 1), or U[-1, 1) if signed

        Levels drawn for fewer clients are the first of those for more; another `who` has different levels.
        """
        keys = generator(seed, "client shift", who, "keys").integers(1 << 32, size=(count, 2), dtype=np.uint32)
        share = generator(seed, "client shift", who).random(count)
        share = 2 * share - 1 if self.signed else share
        share = np.arange(1, count + 1) / count if self.levels == "rising" else share
        return (self.largest * share).astype(np.float32), keys


class Drift(NamedTuple):
    """A change of all examples over rounds.

    Attributes:
      round: number of rounds before it.
      inputs: (inputs [B, H, W, C], 0-based round, key data of the run) -> inputs; None leaves them unchanged.
      classes: (0-based round, key data of the run) -> the label that each class has, int32 [C]; None: no change.
    """

    round: int
    inputs: Callable | None = None
    classes: Callable | None = None


# Builders have the signature builder(*, option=...) -> Shift.
SHIFTS = Registry(
    "client shift",
    rule="what becomes of a client's inputs",
    common={"levels": "drawn (uniform, from the seed of the partition) or rising with the client's number, k / K."},
    builds=Shift,
)

# Builders have the signature builder(num_classes, *, round, option=...) -> Drift.
DRIFTS = Registry(
    "drift",
    rule="what changes for all clients, and in evaluation",
    common={"round": "number of rounds before the drift; the evaluation after the next one is the first to show it."},
    builds=Drift,
)


def as_numbers(inputs):
    """Returns inputs as floating-point numbers, uint8 divided by 255."""
    return inputs.astype(jnp.float32) / 255 if inputs.dtype == jnp.uint8 else inputs


def rotated(images, degrees):
    """Rotates images [B, H, W, C] about their center, counterclockwise; bilinear, black outside."""
    height, width = images.shape[1:3]
    y, x = jnp.meshgrid(jnp.arange(height) - (height - 1) / 2, jnp.arange(width) - (width - 1) / 2, indexing="ij")
    angle = jnp.deg2rad(degrees)
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    places = sin * x + cos * y + (height - 1) / 2, cos * x - sin * y + (width - 1) / 2
    plane = lambda pixels: map_coordinates(pixels, places, order=1, mode="constant")
    return jax.vmap(jax.vmap(plane, -1, -1))(images)


@SHIFTS.register("noise", paper="li2022niid")
def noise(*, std: Positive = 0.5, levels: Levels = "drawn") -> Shift:
    """Gaussian noise, the same for an example in every epoch: x <- x + level_k z, z ~ N(0, I).

    Args:
      std: the largest level.

    Source: Li et al. 2022, https://arxiv.org/abs/2102.02079, with levels=rising; their code redraws z whenever an
    example is read, its levels begin at 0, and it calls std, a standard deviation as here, a variance.

    Example:
      >>> noise(std=2, levels="rising").of_clients(4, seed=0)[0].tolist()
      [0.5, 1.0, 1.5, 2.0]
    """

    def change(x, level, key, positions):
        draw = lambda position: jax.random.normal(jax.random.fold_in(key, position), x.shape[1:], x.dtype)
        return x + level.astype(x.dtype) * jax.vmap(draw)(positions)

    return Shift(std, levels, change, needs_images=False)


@SHIFTS.register("rotation")
def rotation(*, degrees: Annotated[float, Range(0, 180, open_least=True)] = 45.0, levels: Levels = "drawn") -> Shift:
    """Rotation of all images of a client by one angle, counterclockwise, black outside; drawn angles have either sign.

    Args:
      degrees: the largest angle.

    Example:
      >>> bool((abs(rotation(degrees=45).of_clients(100, seed=0)[0]) < 45).all())
      True
    """
    return Shift(degrees, levels, lambda x, level, key, positions: rotated(x, level), signed=True)


@SHIFTS.register("color")
def color(*, strength: PositiveShare = 0.5, levels: Levels = "drawn") -> Shift:
    """Gain of every color channel c, as from another camera: x_c <- (1 + level_k u_kc) x_c, u_kc ~ U[-1, 1).

    Args:
      strength: the largest level.

    Example:
      >>> color(strength=0.5).largest
      0.5
    """

    def change(x, level, key, positions):
        return x * (1 + level * jax.random.uniform(key, x.shape[-1:], minval=-1, maxval=1)).astype(x.dtype)

    return Shift(strength, levels, change)


@SHIFTS.register("blur")
def blur(*, radius: Positive = 2.0, levels: Levels = "drawn") -> Shift:
    """Gaussian blur, along both axes: x_i <- sum_j w_ij x_j, w_ij ~ exp(-(i - j)^2 / (2 level_k^2)), sum_j w_ij = 1.

    Args:
      radius: the largest level, in pixels.

    Example:
      >>> blur(radius=2).needs_images
      True
    """

    def change(x, level, key, positions):
        def weights(length):
            distance = jnp.arange(length)[:, None] - jnp.arange(length)
            # At level 0 the image remains.
            return jax.nn.softmax(-(distance**2) / (2 * jnp.maximum(level, 1e-3) ** 2), axis=1).astype(x.dtype)

        return jnp.einsum("ij,kl,bjlc->bikc", weights(x.shape[1]), weights(x.shape[2]), x)

    return Shift(radius, levels, change)


@DRIFTS.register("swap")
def swap(num_classes: int, *, round: PositiveInt, classes: Annotated[int, Range(2)] = 2) -> Drift:
    """Labels of some classes, drawn from the run's seed, are exchanged: each gets the label of the next one.

    Args:
      classes: number of these classes.

    Example:
      >>> import numpy as np
      >>> key = jax.random.key_data(jax.random.key(0, impl="threefry2x32"))
      >>> np.flatnonzero(swap(10, round=5).classes(5, key) != np.arange(10)).tolist()
      [0, 1]
    """
    if classes > num_classes:
        raise UserError(
            f"drift swap: classes={classes}, and the data set has {num_classes}; omit the drift, or lower it."
        )

    def labels(at, run):
        own = jnp.arange(num_classes, dtype=jnp.int32)
        drawn = jax.random.permutation(jax.random.wrap_key_data(run, impl="threefry2x32"), own)[:classes]
        return jnp.where(at >= round, own.at[drawn].set(jnp.roll(drawn, -1)), own)

    return Drift(round, classes=labels)


@DRIFTS.register("rotate")
def rotate(num_classes: int, *, round: PositiveInt, degrees: Finite = 45.0, rounds: PositiveInt = 1) -> Drift:
    """Images are rotated by an angle that grows, then stays: degrees min(1, t / rounds) in the t-th round of the drift.

    Args:
      degrees: the final angle.
      rounds: number of rounds over which the angle grows.

    Example:
      >>> rotate(10, round=100, degrees=90, rounds=50).round
      100
    """

    def inputs(images, at, run):
        return rotated(images, degrees * jnp.clip((at - round + 1) / rounds, 0, 1))

    return Drift(round, inputs=inputs)
