"""Loaders of data sets, one file each or per family; every file registers its own."""

from fedwin.registry import import_all

import_all(__name__, __path__)
