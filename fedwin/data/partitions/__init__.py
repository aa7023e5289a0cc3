"""How training examples are dealt to clients, a file per partitioner; each enters itself in the registry."""

from fedwin.registry import import_all

import_all(__name__, __path__)
