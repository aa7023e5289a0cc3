"""Networks by name, and adapters for networks of flax, haiku and FedJAX.

>>> from fedwin import models
>>> model = models.build("mlp:hidden=100", (28, 28, 1), 10)
>>> model.name, model.num_classes
('mlp', 10)
"""

from fedwin.models import networks
from fedwin.models.adapters import from_fedjax, from_flax, from_haiku
from fedwin.models.adapters.classifier import check_input_shape
from fedwin.models.compatibility import check
from fedwin.models.model import MODELS, PRECISION, Model, Output


def build(text: str, input_shape, num_classes: int) -> Model:
    """Builds a model by `name` or `name:key=value,...`.

    Args:
      text: a name of MODELS, with options.
      input_shape: shape of one example.
      num_classes: how many outputs it has.

    Raises:
      UserError: when the name or an option is unknown, or the input too small for the network.
    """
    return MODELS.build(text, check_input_shape(text, input_shape), num_classes)


__all__ = ["MODELS", "PRECISION", "Model", "Output", "build", "check", "from_fedjax", "from_flax", "from_haiku"]
