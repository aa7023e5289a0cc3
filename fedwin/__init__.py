"""fedwin: federated-learning simulation with a memory across rounds, in JAX.

import fedwin
summary = fedwin.run(fedwin.Config(algorithm="scaffold", observe=["wima:window=50"]))
"""

import importlib

__version__ = "0.1.0"

# Loaded on first use: `import fedwin` stays quick, and jax can still be configured after it.
_PLACES = {
    "ALGORITHMS": "fedwin.algorithms",
    "Config": "fedwin.runs.config",
    "DATASETS": "fedwin.data",
    "LOSSES": "fedwin.losses",
    "MODELS": "fedwin.models",
    "OBSERVERS": "fedwin.observers",
    "PARTITIONS": "fedwin.data",
    "STRATEGIES": "fedwin.engine.strategy",
    "Setting": "fedwin.core",
    "Solver": "fedwin.local",
    "UserError": "fedwin.errors",
    "WRAPPERS": "fedwin.wrappers",
    "as_fedjax": "fedwin.fedjax_bridge",
    "citation": "fedwin.citations",
    "run": "fedwin.runs.run",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str):
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'fedwin' has no attribute '{name}'")


def __dir__():
    return sorted([*globals(), *_PLACES])
