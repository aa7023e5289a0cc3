"""`python -m experiments.bench` in a checkout is `fedwin bench`; the code is in `tools/bench.py`."""

from .cli import run_tool

if __name__ == "__main__":
    run_tool("bench")
