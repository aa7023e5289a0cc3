"""Programs in processes of their own."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[1]


def output_of(*command, cwd=ROOT, **variables: str) -> str:
    """Runs a command, which must succeed, with this checkout on the path; returns what it printed.

    Args:
      **variables: further environment variables.
    """
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": paths} | variables
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
