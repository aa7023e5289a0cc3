"""Federated-learning simulation with a memory across rounds, in JAX.

    import fedwin
    summary = fedwin.run(fedwin.Config(algorithm="scaffold", observe=["wima:window=50"]))

Subpackages (`fedwin.data`, `fedwin.models`, `fedwin.testing`, ...) are imported on first use.
"""

import importlib
import pathlib
import re

__version__ = "0.1.0"

# The stub, which type checkers read, lists the public names and subpackages. They are loaded on first use, so that
# `import fedwin` is quick and jax can still be configured after it.
_STUB = pathlib.Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_SUBMODULES = set(re.findall(r"^from fedwin import (\w+)", _STUB, re.M))
# Public name -> the module that defines it.
_EXPORTS = {name: module for module, name in re.findall(r"^from (fedwin\.\S+) import (\w+)", _STUB, re.M)}
_EXPORTS["load_plugins"] = "fedwin.plugins"
# Public names that are called differently where they are defined.
_DEFINED_AS = {"load_plugins": "load"}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str):
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), _DEFINED_AS.get(name, name))
    if name in _SUBMODULES:
        return importlib.import_module(f"fedwin.{name}")
    raise AttributeError(f"module 'fedwin' has no attribute '{name}'")


def __dir__():
    return sorted([*globals(), *_EXPORTS, *_SUBMODULES])
