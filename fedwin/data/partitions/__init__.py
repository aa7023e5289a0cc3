"""How training examples are dealt to clients, one file per partitioner; each registers itself."""

from fedwin.registry import import_all

import_all(__name__, __path__)
