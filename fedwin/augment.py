"""From stored examples to network input: normalisation, and train-time augmentation per image, inside the compiled step."""

import jax
import jax.numpy as jnp
from jax import lax

from fedwin.errors import UserError
from fedwin.registry import Registry

AUGMENTATIONS = Registry("augmentation")


def normaliser(mean, std):
    """Returns batch -> batch with x <- (x / 255 if uint8 - mean) / std per channel, in float32; others stay as they are."""

    def normalise(batch):
        x = batch["x"]
        if not (x.dtype == jnp.uint8 or jnp.issubdtype(x.dtype, jnp.floating)):
            return batch
        if x.dtype == jnp.uint8:
            x = x.astype(jnp.float32) / 255
        if mean is not None:
            x = (x - jnp.asarray(mean, x.dtype)) / jnp.asarray(std, x.dtype)
        return batch | {"x": x}

    return normalise


@AUGMENTATIONS.register("none")
def none():
    """Leaves images as they are."""
    return lambda images, key: images


def _flip(images, key):
    flips = jax.random.bernoulli(key, 0.5, (images.shape[0], 1, 1, 1))
    return jnp.where(flips, images[:, :, ::-1, :], images)


@AUGMENTATIONS.register("flip")
def flip():
    """Mirrors every image left-right with probability 1/2."""
    return _flip


@AUGMENTATIONS.register("crop_flip")
def crop_flip(*, padding: int = 4):
    """Pads by `padding` zeros, crops back at a place of its own for every image, mirrors with probability 1/2."""
    if not isinstance(padding, int) or padding < 1:
        raise UserError(f"augmentation crop_flip: padding={padding} must be an integer >= 1.")

    def augment(images, key):
        crop_key, flip_key = jax.random.split(key)
        count, height, width, channels = images.shape
        padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
        corner = jax.random.randint(crop_key, (count, 2), 0, 2 * padding + 1)
        crop = lambda image, at: lax.dynamic_slice(image, (at[0], at[1], 0), (height, width, channels))
        return _flip(jax.vmap(crop)(padded, corner), flip_key)

    return augment


def train_preparation(mean, std, augmentation: str = "none"):
    """Returns (batch, key) -> batch: augmentation of the stored image (crops pad with black), then normalisation."""
    augment = AUGMENTATIONS.build(augmentation)
    normalise = normaliser(mean, std)

    def prepare(batch, key):
        if augmentation != "none" and batch["x"].ndim != 4:
            raise UserError(f"augmentation '{augmentation}' needs images [B, H, W, C]; this data set has none.")
        images = augment(batch["x"], key) if augmentation != "none" else batch["x"]
        return normalise(batch | {"x": images})

    return prepare
