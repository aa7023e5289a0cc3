"""`python -m experiments.docs` in a checkout is `fedwin docs`; the code is in `tools/docs.py`."""

from .cli import run_tool

if __name__ == "__main__":
    run_tool("docs")
