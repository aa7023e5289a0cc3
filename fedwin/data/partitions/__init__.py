"""Partitioners: split training examples over clients, one file each; every file registers its own."""

from fedwin.registry import import_all

import_all(__name__, __path__)
