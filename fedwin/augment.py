"""Augmentation and normalization of examples inside the compiled training step."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedwin import tree
from fedwin.errors import UserError
from fedwin.registry import Registry
from fedwin.registry.ranges import NonNegativeInt


class Augmentation(NamedTuple):
    """Transformation of images before normalization.

    Attributes:
      name: name for messages.
      train: (images [B, H, W, C], key) -> images, in training.
      evaluation: images -> images, in evaluation.
      needs_images: whether examples must be images.
    """

    name: str
    train: Callable
    evaluation: Callable = lambda images: images
    needs_images: bool = True


AUGMENTATIONS = Registry("augmentation", builds=Augmentation)

# The identity, for examples of any shape.
NONE = Augmentation("none", lambda examples, key: examples, needs_images=False)


def _flip(images, key, per_batch=False):
    flips = jax.random.bernoulli(key, 0.5, (1 if per_batch else images.shape[0], 1, 1, 1))
    return jnp.where(flips, images[:, :, ::-1, :], images)


@AUGMENTATIONS.register("none")
def none():
    """Leaves images unchanged.

    Example:
      >>> none().name
      'none'
    """
    return NONE


@AUGMENTATIONS.register("flip")
def flip():
    """Mirrors every image left-right with probability 1/2.

    Example:
      >>> flip().name
      'flip'
    """
    return Augmentation("flip", _flip)


@AUGMENTATIONS.register("crop_flip")
def crop_flip(*, padding: NonNegativeInt | None = None, size: NonNegativeInt = 0, per_batch: bool = False):
    """Crops every image at a random position, then mirrors it with probability 1/2.

    Args:
      padding: width of the zeros around the image before it is cropped; by default 4, or 0 if a size is given.
      size: side of the crop, at random in training and from the center in evaluation (images stored at 256 are trained
        on at 224); 0: that of the image.
      per_batch: draw one position and one mirroring for all images of a batch, as FedJAX and the code released with
        GHB do.

    Raises:
      UserError: for a padding of 0 without a size, or images smaller than the crop, or as large without padding.

    Example:
      >>> output_shape(crop_flip(size=224), (256, 256, 3))
      (224, 224, 3)
    """
    padding = (0 if size else 4) if padding is None else padding
    if not (padding or size):
        raise UserError("augmentation crop_flip: padding=0 leaves nothing to crop; give a size, or padding >= 1.")

    def cut_to(height, width):
        if size > min(height, width):
            raise UserError(
                f"augmentation crop_flip: size={size} cannot be cut from images of {height} x {width}; load larger "
                f"ones (landmarks:size=256) or give a smaller size."
            )
        if size == height == width and not padding:
            raise UserError(f"augmentation crop_flip: size={size} is that of the images; give a padding, or use flip.")
        if padding >= (size or min(height, width)):
            raise UserError(
                f"augmentation crop_flip: padding={padding} leaves crops of images of {height} x {width} that contain "
                f"zeros only; give a padding below {size or min(height, width)}."
            )
        return (size or height), (size or width)

    def train(images, key):
        crop_key, flip_key = jax.random.split(key)
        count, height, width, channels = images.shape
        to = cut_to(height, width)
        padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
        room = jnp.array([height - to[0], width - to[1]]) + 2 * padding
        corner = jax.random.randint(crop_key, (1 if per_batch else count, 2), 0, room + 1)
        corner = jnp.broadcast_to(corner, (count, 2))
        crop = lambda image, at: lax.dynamic_slice(image, (at[0], at[1], 0), (*to, channels))
        return _flip(jax.vmap(crop)(padded, corner), flip_key, per_batch)

    def from_center(images):
        height, width = cut_to(*images.shape[-3:-1])
        top, left = (images.shape[-3] - height) // 2, (images.shape[-2] - width) // 2
        return images[..., top : top + height, left : left + width, :]

    return Augmentation("crop_flip", train, from_center)


def output_shape(augmentation: Augmentation, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns an example's shape after augmentation; UserError if it is no image, or too small, and has to be one."""
    if not augmentation.needs_images:
        return tuple(shape)
    if len(shape) != 3:
        raise UserError(
            f"augmentation '{augmentation.name}' needs images [H, W, C]; this data set has examples {list(shape)}."
        )
    return jax.eval_shape(augmentation.evaluation, jax.ShapeDtypeStruct((1, *shape), jnp.uint8)).shape[1:]


def normalizer(mean, std, augmentation: Augmentation = NONE) -> Callable:
    """Returns the preparation of batches in evaluation, batch -> batch: the augmentation's crop, then normalization.

        x <- (x / 255 - mean) / std       per channel, in at least float32; x is divided by 255 only if it is uint8

    Integers other than uint8 (tokens) are not normalized.

    Args:
      mean, std: per channel; None leaves out the second step.
    """

    return lambda batch: batch | {"x": _normalize(augmentation.evaluation(batch["x"]), mean, std)}


def _normalize(x, mean, std):
    if not (x.dtype == jnp.uint8 or jnp.issubdtype(x.dtype, jnp.floating)):
        return x
    if x.dtype == jnp.uint8:
        x = x.astype(jnp.float32) / 255
    if mean is not None:
        x = tree.at_least_float32(x)
        x = (x - jnp.asarray(mean, x.dtype)) / jnp.asarray(std, x.dtype)
    return x


def train_preparation(mean, std, augmentation: Augmentation = NONE) -> Callable:
    """Returns the preparation of batches in training, (batch, key) -> batch; arguments as for `normalizer`.

    Stored images are augmented, and then normalized, so that crops are padded with black.
    """
    return lambda batch, key: batch | {"x": _normalize(augmentation.train(batch["x"], key), mean, std)}
