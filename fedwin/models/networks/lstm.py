"""Recurrent language models: Shakespeare characters and Stack Overflow words."""

from typing import Literal

import jax.numpy as jnp
from flax import linen as nn
from jax.nn import initializers
from jax.typing import DTypeLike

from fedwin.losses import last_target
from fedwin.models.layers import Dense, haiku_kernel, torch_bias, torch_dense
from fedwin.models.network_builder import Width, network
from fedwin.models.recurrence import lstm

# The token after every position, logits [B, T, V], or after the last one, [B, V].
Predict = Literal["all", "last"]


class LSTM(nn.Module):
    """A layer of `fedwin.models.recurrence.lstm` with one bias vector: 4 H (in + H + 1) parameters.

    Attributes:
      initializer: 'haiku' (truncated normal, sigma = 1/sqrt(in + H), zero bias, and 1 is added to the forget gate) or
        'torch' (all U(-1/sqrt(H), 1/sqrt(H))).
    """

    hidden: int
    initializer: Literal["haiku", "torch"] = "torch"
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x):
        """Returns the hidden states, [T, B, in] -> [T, B, H], starting from zeros."""
        size, width = x.shape[-1], self.hidden
        if self.initializer == "haiku":
            kernel = initializers.truncated_normal((size + width) ** -0.5)
            bias_init = initializers.zeros
        else:
            kernel = bias_init = torch_bias(width)
        w_x = self.param("input_kernel", kernel, (size, 4 * width), jnp.float32).astype(self.dtype)
        w_h = self.param("hidden_kernel", kernel, (width, 4 * width), jnp.float32).astype(self.dtype)
        bias = self.param("bias", bias_init, (4 * width,), jnp.float32).astype(self.dtype)
        bias = bias.at[2 * width : 3 * width].add(1.0) if self.initializer == "haiku" else bias
        return lstm(x.astype(self.dtype), w_x, w_h, bias)


class LanguageModel(nn.Module):
    """Embedding, LSTM layers [tanh after each], [dense to the embedding's width], classifier at every or the last step.

    Attributes:
      vocab: number of ids, read and predicted.
      predict: 'all' gives logits [B, T, V], 'last' [B, V].
      tanh: whether a tanh follows each LSTM.
      project: width of the dense layer, 0 for none.
      padded: whether id 0 is padding, so that the last position is that of `losses.last_target`; otherwise it is T - 1.
      initializer: 'haiku' (FedJAX's form) or 'torch'.
    """

    vocab: int
    embed: int
    hidden: int
    layers: int
    predict: Predict
    tanh: bool = False
    project: int = 0
    padded: bool = False
    initializer: Literal["haiku", "torch"] = "torch"
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, tokens):
        haiku = self.initializer == "haiku"
        embedding = initializers.truncated_normal(1.0) if haiku else initializers.normal(1.0)
        embed = nn.Embed(self.vocab, self.embed, embedding_init=embedding, name="embedding")
        x = embed(tokens.T)  # time first, as the recurrence takes it
        for i in range(self.layers):
            x = LSTM(self.hidden, self.initializer, self.dtype, name=f"lstm{i + 1}")(x)
            x = jnp.tanh(x) if self.tanh else x
        if self.predict == "last":
            x = jnp.take_along_axis(x, last_target(tokens)[None, :, None], 0)[0] if self.padded else x[-1]
        else:
            x = jnp.swapaxes(x, 0, 1)
        if haiku:
            dense = lambda x, width, name: Dense(width, kernel_init=haiku_kernel, dtype=self.dtype, name=name)(x)
        else:
            dense = lambda x, width, name: torch_dense(x, width, dtype=self.dtype, name=name)
        if self.project:
            x = dense(x, self.project, "projection")
        return dense(x, self.vocab, "classifier"), x


@network(
    "shakespeare_lstm",
    "tokens",
    paper=("mcmahan2017communication", "ro2021fedjax"),
    parameters="820,522",
    usual=((80,), 90),
)
def shakespeare_lstm(input_shape, num_classes, *, predict: Predict = "all"):
    """FedJAX's character model: embedding 8, two LSTMs of 256, tanh after each, 820,522 parameters for 90 ids."""
    return LanguageModel(num_classes, 8, 256, 2, predict, tanh=True, padded=True, initializer="haiku")


@network("leaf_lstm", "tokens", paper=("caldas2018leaf", "li2020federated"), parameters="132,720", usual=((80,), 80))
def leaf_lstm(input_shape, num_classes, *, predict: Predict = "last", hidden: Width = 100):
    """FedProx's and GHB's character model: embedding 8, two LSTMs of 100, last step: 132,720 parameters for 80 ids.

    LEAF's own model has hidden=256. Padded rows need predict=all: at the last position, their target has been read.

    Args:
      hidden: width of both LSTMs.
    """
    return LanguageModel(num_classes, 8, hidden, 2, predict)


@network("stackoverflow_lstm", "tokens", paper="reddi2021adaptive", parameters="4,050,748", usual=((20,), 10_004))
def stackoverflow_lstm(input_shape, num_classes, *, predict: Predict = "last", tanh: bool = True):
    """Next-word model: embedding 96, LSTM 670 [tanh], dense 96, classifier: 4,050,748 parameters for 10,004 ids.

    The source predicts every token (predict=all), the heavy-ball paper one per sentence: the last word that fits
    (`losses.last_target`).

    Args:
      tanh: whether a tanh follows the LSTM, as in FedJAX.
    """
    return LanguageModel(num_classes, 96, 670, 1, predict, tanh, project=96, padded=True, initializer="haiku")
