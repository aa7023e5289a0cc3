"""Small transformers: a decoder for characters or words, and a vision transformer."""

from typing import Literal

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers
from jax.typing import DTypeLike

from fedwin.errors import UserError
from fedwin.models.attention import SCALE, RowDense, apply_blocks, check_heads
from fedwin.models.layers import Dense
from fedwin.models.network_builder import Depth, Width, network


class TiedDense(nn.Dense):
    """A dense layer without bias, [width] -> [features], whose columns are also the embeddings of tokens."""

    width: int = 0

    def setup(self):
        self.kernel = self.param("kernel", self.kernel_init, (self.width, self.features), self.param_dtype)

    def embed(self, tokens):
        """Returns the embeddings of tokens, int [...] -> [..., width]."""
        return jnp.take(self.kernel.T, tokens, axis=0).astype(self.dtype)

    def __call__(self, x):
        rows = x.astype(self.dtype).reshape(-1, self.width)
        return (rows @ self.kernel.astype(self.dtype)).reshape(*x.shape[:-1], self.features)


class Decoder(nn.Module):
    """Embedding [+ learned positions], causal blocks, layer normalization, classifier at every or the last position.

    Attributes:
      tie: whether the classifier's kernel is the embedding.
      predict: 'all' gives logits [B, T, V], 'last' [B, V].
    """

    vocab: int
    layers: int
    width: int
    heads: int
    rotary: bool
    tie: bool
    predict: str
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, tokens):
        normal = initializers.normal(SCALE)
        options = dict(use_bias=False, kernel_init=normal, dtype=self.dtype, name="classifier")
        if self.tie:
            classifier: nn.Module = TiedDense(self.vocab, width=self.width, **options)
            x = classifier.embed(tokens)
        else:
            classifier = RowDense(self.vocab, **options)
            x = nn.Embed(self.vocab, self.width, embedding_init=normal, name="embedding")(tokens).astype(self.dtype)
        if not self.rotary:
            x = (x + self.param("positions", normal, (tokens.shape[-1], self.width), jnp.float32)).astype(self.dtype)
        # Padding follows the tokens of a row, so that no position with a target sees it.
        x = apply_blocks(x, self.layers, self.heads, causal=True, rotary=self.rotary, dtype=self.dtype)
        x = x[:, -1] if self.predict == "last" else x
        return classifier(x), x


@network(
    "transformer",
    "tokens",
    paper=("vaswani2017attention", "radford2019language"),
    parameters="110,976",
    usual=((80,), 90),
)
def transformer(
    input_shape,
    num_classes,
    *,
    layers: Depth = 2,
    width: Width = 64,
    heads: Width = 4,
    positions: Literal["learned", "rotary"] = "learned",
    tie: bool = True,
    predict: Literal["all", "last"] = "all",
):
    """A small GPT-2, causal and pre-norm: 12 layers width^2 + ... = 110,976 parameters for 90 ids and 80 positions.

        parameters = layers (12 width^2 + 13 width) + 2 width + V width [+ T width, learned] [+ V width, tie=false]

    With the classifier tied to the embedding (Press and Wolf, 2017, https://arxiv.org/abs/1608.05859), part=classifier
    means both. The other parts are block1, block2, ... (norm1, attention with query, key, value and out, norm2, up,
    down), norm and, where they are learned, positions. Rotary positions are those of https://arxiv.org/abs/2104.09864.
    Initialization as in GPT-2, without dropout.

    Args:
      width: width of the embeddings and blocks.
      positions: 'learned', a vector per position, or 'rotary', for an even width per head.
      tie: whether the embedding is the classifier's weights.
      predict: 'all' predicts the token after every position, logits [B, T, V]; 'last' after position T, [B, V], for
        rows without padding and with one label.
    """
    check_heads("transformer", width, heads)
    rotary = positions == "rotary"
    if rotary and width // heads % 2:
        raise UserError(
            f"transformer: rotary positions turn pairs, but width={width} and heads={heads} give {width // heads} per "
            "head; choose an even number."
        )
    return Decoder(num_classes, layers, width, heads, rotary, tie, predict)


def patches_of(images, size: int):
    """Returns the patches of images, row by row, [B, H, W, C] -> [B, H W / size^2, size^2 C]; size divides H and W."""
    batch, height, width, channels = images.shape
    tiles = images.reshape(batch, height // size, size, width // size, size, channels)
    return tiles.swapaxes(2, 3).reshape(batch, -1, size * size * channels)


class ViT(nn.Module):
    """Dense layer on every patch, [class token,] learned positions, blocks, layer normalization, classifier."""

    num_classes: int
    patch: int
    layers: int
    width: int
    heads: int
    pool: str
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x):
        normal = initializers.normal(SCALE)
        options = dict(kernel_init=normal, dtype=self.dtype)
        x = RowDense(self.width, name="patches", **options)(patches_of(x, self.patch))
        if self.pool == "token":
            token = self.param("token", normal, (1, 1, self.width), jnp.float32)
            x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, self.width)), x], 1)
        x = (x + self.param("positions", normal, x.shape[1:], jnp.float32)).astype(self.dtype)
        x = apply_blocks(x, self.layers, self.heads, causal=False, dtype=self.dtype)
        x = x[:, 0] if self.pool == "token" else x.mean(1)
        return Dense(self.num_classes, name="classifier", **options)(x), x


@network("vit", "images", paper="dosovitskiy2021image", parameters="208,074", usual=((32, 32, 3), 10))
def vit(
    input_shape,
    num_classes,
    *,
    patch: Width = 4,
    layers: Depth = 4,
    width: Width = 64,
    heads: Width = 4,
    pool: Literal["token", "mean"] = "token",
):
    """A small vision transformer on patches: 208,074 parameters for 32x32x3 images and 10 classes.

        parameters = layers (12 width^2 + 13 width) + (patch^2 C + n + 3) width [+ 2 width, token] + C' (width + 1)

    for C channels, n patches and C' classes. The parts are patches, token, positions, block1, block2, ..., norm and
    classifier; blocks and initialization are those of `transformer`. No dropout.

    Args:
      patch: side of a patch in pixels; must divide the image's height and width.
      width: width of the blocks.
      pool: what the classifier sees: 'token', a class token as in the paper, or 'mean', the mean over the patches.
    """
    check_heads("vit", width, heads)
    if any(side % patch for side in input_shape[:2]):
        size = "x".join(map(str, input_shape[:2]))
        raise UserError(f"vit: patch={patch} must divide the height and the width of the {size} images.")
    return ViT(num_classes, patch, layers, width, heads, pool)
