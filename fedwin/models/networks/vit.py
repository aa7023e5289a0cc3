"""A small vision transformer."""

from typing import Any, Literal

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers

from fedwin.errors import UserError
from fedwin.models.attention import SCALE, apply_blocks, check_blocks
from fedwin.models.model import MODELS, Model, compute_dtype
from fedwin.models.network_builder import build_network, check_size


def patches_of(images, size: int):
    """Returns the patches of images, row by row, [B, H, W, C] -> [B, H W / size^2, size^2 C].

    Args:
      images: [B, H, W, C].
      size: side of a patch; must divide H and W.
    """
    batch, height, width, channels = images.shape
    tiles = images.reshape(batch, height // size, size, width // size, size, channels)
    return tiles.swapaxes(2, 3).reshape(batch, -1, size * size * channels)


class ViT(nn.Module):
    """Dense layer on every patch, [class token,] learned positions, blocks, layer normalization, classifier.

    Attributes:
      num_classes: number of outputs.
      patch: side of a patch in pixels.
      layers: number of blocks.
      width: width of the blocks.
      heads: number of heads of the attention.
      pool: 'token', the classifier sees a class token, or 'mean', the mean over the patches.
      dtype: compute type.
    """

    num_classes: int
    patch: int
    layers: int
    width: int
    heads: int
    pool: str
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x):
        normal = initializers.normal(SCALE)
        options = dict(kernel_init=normal, dtype=self.dtype)
        x = nn.Dense(self.width, name="patches", **options)(patches_of(x, self.patch))
        if self.pool == "token":
            token = self.param("token", normal, (1, 1, self.width)).astype(self.dtype)
            x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, self.width)), x], 1)
        x = x + self.param("positions", normal, x.shape[1:]).astype(self.dtype)
        x = apply_blocks(x, self.layers, self.heads, causal=False, dtype=self.dtype)
        x = x[:, 0] if self.pool == "token" else x.mean(1)
        return nn.Dense(self.num_classes, name="classifier", **options)(x), x


@MODELS.register("vit", paper="dosovitskiy2021image", parameters="208,074", usual=((32, 32, 3), 10))
def vit(
    input_shape,
    num_classes,
    *,
    patch: int = 4,
    layers: int = 4,
    width: int = 64,
    heads: int = 4,
    pool: Literal["token", "mean"] = "token",
    dtype: str = "float32",
) -> Model:
    """A small vision transformer on patches: 208,074 parameters for 32x32x3 images and 10 classes.

        parameters = layers (12 width^2 + 13 width) + (patch^2 C + n + 3) width [+ 2 width, token] + C' (width + 1)

    for C channels, n patches and C' classes. The parts are patches, token, positions, block1, block2, ..., norm and
    classifier; blocks and initialization are those of `transformer`. No dropout.

    Args:
      input_shape: shape of one image, [height, width, channels].
      num_classes: number of outputs.
      patch: side of a patch in pixels; must divide the image's height and width.
      layers: number of blocks.
      width: width of the blocks.
      heads: number of heads of the attention; must divide the width.
      pool: what the classifier sees: 'token', a class token as in the paper, or 'mean', the mean over the patches.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not images, or an impossible option.

    Source: https://arxiv.org/abs/2010.11929

    Example:
      >>> from fedwin import models
      >>> model = models.build("vit:patch=2,layers=2,width=32", (8, 8, 1), 10)
      >>> model.name, model.num_classes
      ('vit', 10)
    """
    check_blocks("vit", layers, width, heads)
    check_size("vit", "patch", patch)
    if len(input_shape) == 3 and any(side % patch for side in input_shape[:2]):
        size = "x".join(map(str, input_shape[:2]))
        raise UserError(f"vit: patch={patch} must divide the height and the width of the {size} images.")
    module = ViT(num_classes, patch, layers, width, heads, pool, compute_dtype(dtype))
    return build_network("vit", module, input_shape, num_classes, "images")
