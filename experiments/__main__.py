"""`python -m experiments WORD` is `fedwin WORD` in a checkout."""

from .cli import main

main()
