"""fedwin: federated-learning simulation with a memory across rounds, in JAX."""

__version__ = "0.1.0"
