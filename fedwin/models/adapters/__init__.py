"""Adapters that wrap networks of flax, haiku and FedJAX as fedwin.models.Model."""

from fedwin.models.adapters.flax import from_flax
from fedwin.models.adapters.haiku import from_fedjax, from_haiku

__all__ = ["from_fedjax", "from_flax", "from_haiku"]
