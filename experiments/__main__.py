"""`python -m experiments SUBCOMMAND` in a checkout is `fedwin SUBCOMMAND`."""

from .cli import main

main()
