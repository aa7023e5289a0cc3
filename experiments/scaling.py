"""`python -m experiments.scaling` in a checkout is `fedwin scaling`; the code is in `tools/scaling.py`."""

from .cli import run_tool

if __name__ == "__main__":
    run_tool("scaling")
