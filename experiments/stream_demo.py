"""`python -m experiments.stream_demo` in a checkout is `fedwin stream_demo`; the code is in `tools/stream_demo.py`."""

from .cli import run_tool

if __name__ == "__main__":
    run_tool("stream_demo")
