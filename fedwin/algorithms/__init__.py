"""Federated algorithms by name: `ALGORITHMS.build("fedprox:mu=0.1", setting, solve)`.

A builder has the signature `builder(setting: core.Setting, solve: local.Solver, *, hyper=default, ...) ->
core.Algorithm`. To add an algorithm, write one file with one `@ALGORITHMS.register(...)` above its builder: every
module of this package is imported, and the contract tests and golden tests (keys that start with its name) cover it.
"""

from fedwin.algorithms.registry import ALGORITHMS
from fedwin.registry import import_all

import_all(__name__, __path__)

__all__ = ["ALGORITHMS"]
