"""The binaries: `python -m experiments.train` in a checkout, `fedwin train` where the package is installed."""

from .early import quiet_start

quiet_start()
