"""Networks, one family per file; each registers itself in `fedwin.models.MODELS`."""

from fedwin.registry import import_all

import_all(__name__, __path__)
