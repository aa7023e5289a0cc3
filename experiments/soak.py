"""`python -m experiments.soak` in a checkout is `fedwin soak`; the code is in `tools/soak.py`."""

from .cli import run_tool

if __name__ == "__main__":
    run_tool("soak")
