"""Personalizers: how a client adapts an evaluated model to its own training examples before evaluation.

Personalization reads the trajectory and never changes it. Every module of this package is imported, so a new file that
registers a personalizer needs no other change.
"""

from fedwin.personalization.registry import PERSONALIZERS, Personalizer, build_all
from fedwin.registry import import_all

import_all(__name__, __path__)

__all__ = ["PERSONALIZERS", "Personalizer", "build_all"]
