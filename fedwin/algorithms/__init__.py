"""The algorithms by name: `ALGORITHMS.build("fedprox:mu=0.1", setting, solve)`.

A builder has the signature `builder(setting: core.Setting, solve: local.Solver, *, hyper=default, ...) ->
core.Algorithm`. To add an algorithm, write one file with one `@ALGORITHMS.register(...)` above its builder: it is found
by itself, and tests take everything else from there, golden values from whatever key begins with its name.
"""

from fedwin.algorithms.registry import ALGORITHMS
from fedwin.registry import import_all

import_all(__name__, __path__)

__all__ = ["ALGORITHMS"]
