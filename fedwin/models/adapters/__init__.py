"""Adapters that wrap networks of flax, haiku and FedJAX as fedwin.models.Model."""
