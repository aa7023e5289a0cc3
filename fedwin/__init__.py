"""fedwin: federated-learning simulation with a memory across rounds, in JAX.

    import fedwin
    summary = fedwin.run(fedwin.Config(algorithm="scaffold", observe=["wima:window=50"]))

The wings (`fedwin.data`, `fedwin.models`, `fedwin.testing`, ...) need no import of their own.
"""

import importlib
import pathlib
import pkgutil

__version__ = "0.1.0"

# Loaded on first use: `import fedwin` stays quick, and jax can still be configured after it.
_PLACES = {
    "ALGORITHMS": "fedwin.algorithms",
    "AUGMENTATIONS": "fedwin.augment",
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
    "check": "fedwin.runs.run",
    "client_models": "fedwin.runs.load",
    "load": "fedwin.runs.load",
    "run": "fedwin.runs.run",
}
# Functions that have another name where they are defined.
_RENAMED = {"load_plugins": ("fedwin.plugins", "load")}
# Every module and package beside this file, but the shell: that one is run, not used.
_WINGS = {module.name for module in pkgutil.iter_modules([str(pathlib.Path(__file__).parent)])} - {"experiments"}
__all__ = sorted([*_PLACES, *_RENAMED])


def __getattr__(name: str):
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    if name in _RENAMED:
        place, there = _RENAMED[name]
        return getattr(importlib.import_module(place), there)
    if name in _WINGS:
        return importlib.import_module(f"fedwin.{name}")
    raise AttributeError(f"module 'fedwin' has no attribute '{name}'")


def __dir__():
    return sorted([*globals(), *_PLACES, *_RENAMED, *_WINGS])
