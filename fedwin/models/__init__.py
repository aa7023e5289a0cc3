"""Networks by name, adapters for networks of flax, haiku and FedJAX, and a check that a network fits the data.

>>> from fedwin import models
>>> model = models.build("mlp:hidden=100", (28, 28, 1), 10)
>>> model.name, model.num_classes
('mlp', 10)
"""

from fedwin.models import interchange, networks
from fedwin.models.adapters.classifier import check_input_shape
from fedwin.models.adapters.flax import from_flax
from fedwin.models.adapters.haiku import from_fedjax, from_haiku
from fedwin.models.compatibility import check
from fedwin.models.lora import ADAPTATIONS, lora, merged
from fedwin.models.model import MODELS, Model, Output


def build(text: str, input_shape, num_classes: int) -> Model:
    """Builds a model from its name and options.

    Args:
      text: `name` or `name:key=value,...`; the names are those of MODELS.

    Raises:
      UserError: when the name or an option is unknown, or the input is too small for the network.
    """
    return MODELS.build(text, check_input_shape(text, input_shape), num_classes)


__all__ = [
    "ADAPTATIONS",
    "MODELS",
    "Model",
    "Output",
    "build",
    "check",
    "from_fedjax",
    "from_flax",
    "from_haiku",
    "interchange",
    "lora",
    "merged",
    "networks",
]
