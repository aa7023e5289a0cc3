"""The networks by name."""

from fedwin.registry import Registry

MODELS = Registry("model")
