"""`python -m experiments.readme` in a checkout is `fedwin readme`; the code is in `tools/readme.py`."""

from .cli import run_tool

if __name__ == "__main__":
    run_tool("readme")
