"""The subcommands: `fedwin train` where the package is installed, `python -m experiments.train` in a checkout."""

from .cli.early import quiet_start

quiet_start()
