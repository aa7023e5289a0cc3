"""Networks by name, and wrappers for networks of flax, haiku and FedJAX."""

import jax.numpy as jnp

from fedwin.models.adapters import from_fedjax, from_flax, from_haiku
from fedwin.models.model import Model, Output
from fedwin.models.networks import lstm, mobilenet, plain_gn, resnet, resnet18, simple
from fedwin.registry import Registry

# Compute types. Parameters are float32, in float64 float64 (needs jax_enable_x64).
PRECISION = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float64": jnp.float64}

MODELS = Registry("model")
for _builder in (
    simple.digits_mlp,
    simple.digits_cnn,
    simple.mlp,
    simple.pfl_cnn,
    simple.emnist_cnn,
    simple.emnist_dense,
    simple.logistic,
    simple.lenet5,
    simple.mcmahan_cnn,
    resnet.resnet20,
    resnet18.resnet18,
    plain_gn.vgg11,
    plain_gn.alexnet,
    plain_gn.digit5_cnn,
    mobilenet.mobilenetv2,
    lstm.shakespeare_lstm,
    lstm.leaf_lstm,
    lstm.stackoverflow_lstm,
):
    MODELS.register(_builder.__name__, _builder)
MODELS.register("cnn", simple.digits_cnn)


def build(text: str, input_shape, num_classes: int) -> Model:
    """Builds the model that `name` or `name:key=value,...` says, for examples of input_shape and num_classes classes.

    Raises UserError for an unknown name or option, and where the input is too small for the network.
    """
    return MODELS.build(text, tuple(input_shape), num_classes)


__all__ = ["MODELS", "PRECISION", "Model", "Output", "build", "from_fedjax", "from_flax", "from_haiku"]
