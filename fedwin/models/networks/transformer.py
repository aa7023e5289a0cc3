"""A decoder-only transformer, a language model for characters or words."""

from typing import Any, Literal

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers

from fedwin.errors import UserError
from fedwin.models.attention import SCALE, apply_blocks, check_blocks
from fedwin.models.model import MODELS, Model, compute_dtype
from fedwin.models.network_builder import build_network


class TiedDense(nn.Dense):
    """A dense layer without bias, [width] -> [features], whose columns are also the embeddings of tokens.

    Attributes:
      width: of the embeddings.
    """

    width: int = 0

    def setup(self):
        self.kernel = self.param("kernel", self.kernel_init, (self.width, self.features), self.param_dtype)

    def embed(self, tokens):
        """Returns the embeddings of tokens, int [...] -> [..., width]."""
        return jnp.take(self.kernel.T, tokens, axis=0).astype(self.dtype)

    def __call__(self, x):
        return x.astype(self.dtype) @ self.kernel.astype(self.dtype)


class Decoder(nn.Module):
    """Embedding [+ learned positions], causal blocks, layer normalization, classifier at every or the last position.

    Attributes:
      vocab: number of ids.
      layers: number of blocks.
      width: of embeddings and blocks.
      heads: number of heads of the attention.
      rotary: rotary positions in place of learned ones.
      tie: whether the classifier's kernel is the embedding.
      predict: 'all' gives logits [B, T, V], 'last' [B, V].
      dtype: compute type.
    """

    vocab: int
    layers: int
    width: int
    heads: int
    rotary: bool
    tie: bool
    predict: str
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, tokens):
        normal = initializers.normal(SCALE)
        options = dict(use_bias=False, kernel_init=normal, dtype=self.dtype, name="classifier")
        if self.tie:
            classifier: Any = TiedDense(self.vocab, width=self.width, **options)
            x = classifier.embed(tokens)
        else:
            classifier = nn.Dense(self.vocab, **options)
            x = nn.Embed(self.vocab, self.width, embedding_init=normal, dtype=self.dtype, name="embedding")(tokens)
        if not self.rotary:
            x = x + self.param("positions", normal, (tokens.shape[-1], self.width)).astype(self.dtype)
        # Padding follows the tokens of a row, so that no position with a target sees it.
        x = apply_blocks(x, self.layers, self.heads, causal=True, rotary=self.rotary, dtype=self.dtype)
        x = x[:, -1] if self.predict == "last" else x
        return classifier(x), x


@MODELS.register(
    "transformer", paper=("vaswani2017attention", "radford2019language"), parameters="110,976", usual=((80,), 90)
)
def transformer(
    input_shape,
    num_classes,
    *,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    positions: Literal["learned", "rotary"] = "learned",
    tie: bool = True,
    predict: Literal["all", "last"] = "all",
    dtype: str = "float32",
) -> Model:
    """A small GPT-2, causal and pre-norm: 12 layers width^2 + ... = 110,976 parameters for 90 ids and 80 positions.

        parameters = layers (12 width^2 + 13 width) + 2 width + V width [+ T width, learned] [+ V width, tie=false]

    With the classifier tied to the embedding (Press and Wolf, 2017, https://arxiv.org/abs/1608.05859), part=classifier
    is both. The other parts are block1, block2, ... (norm1, attention with query, key, value and out, norm2, up, down),
    norm and, where they are learned, positions. Rotary positions are those of https://arxiv.org/abs/2104.09864.
    Initialization as in GPT-2, without dropout.

    Args:
      input_shape: shape of one sequence, [length].
      num_classes: number of outputs.
      layers: number of blocks.
      width: width of the embeddings and blocks.
      heads: number of heads of the attention; must divide the width.
      positions: 'learned', a vector per position, or 'rotary'.
      tie: whether the embedding is the classifier's weights.
      predict: 'all' predicts the token after every position, logits [B, T, V]; 'last' after position T, [B, V], for
        rows without padding and with one label.
      dtype: compute type: float32, bfloat16 or float64.

    Returns:
      A fedwin.models.Model.

    Raises:
      UserError: for examples that are not sequences, or an impossible option.

    Source: https://arxiv.org/abs/1706.03762

    Example:
      >>> from fedwin import models
      >>> model = models.build("transformer:layers=2,width=64,heads=4", (80,), 90)
      >>> model.name, model.num_classes
      ('transformer', 90)
    """
    check_blocks("transformer", layers, width, heads)
    rotary = positions == "rotary"
    if rotary and width // heads % 2:
        raise UserError(
            f"transformer: rotary positions turn pairs, but width={width} and heads={heads} give {width // heads} per "
            "head; choose an even number."
        )
    module = Decoder(num_classes, layers, width, heads, rotary, tie, predict, compute_dtype(dtype))
    return build_network("transformer", module, input_shape, num_classes, "tokens")
