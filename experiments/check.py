"""`python -m experiments.check` in a checkout is `fedwin check`; the code is in `tools/check.py`."""

from .cli import run_tool

if __name__ == "__main__":
    run_tool("check")
