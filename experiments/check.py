"""Everything that a change must pass, in one command; a line per check, status 1 if any fails.

python -m experiments.check             format, lint, types, doctests, README, API reference
python -m experiments.check --tests     the quick test suite too
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# pytest's status where a folder holds no test.
NO_TESTS = 5


def checks(docs: str, tests: bool = False) -> dict[str, list[str]]:
    """Returns name -> command, to be run by this interpreter with -m.

    Args:
      docs: where the API reference goes.
      tests: whether the test suite is among them.
    """
    found = {
        "format": ["ruff", "format", "--check", "."],
        "lint": ["ruff", "check", "."],
        "types": ["mypy"],
        "doctests": ["pytest", "--doctest-modules", "fedwin", "experiments/papers", "experiments/reproduction"],
        "README": [f"{__package__}.readme", "--check"],
        "API reference": [f"{__package__}.docs", docs],
    }
    return found | ({"tests": ["pytest", "-n", "auto", "--maxprocesses=8", "--dist=worksteal"]} if tests else {})


def passed(name: str, command: list[str]) -> bool:
    """Runs one check, prints its line (and its output, if it failed) and returns whether it passed."""
    if importlib.util.find_spec(command[0]) is None or (
        name == "API reference" and not importlib.util.find_spec("pdoc")
    ):
        print(f"{name:<14} skipped: its tool is not installed (pip install '.[test,docs]')", flush=True)
        return True
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    good = done.returncode == 0 or (name == "doctests" and done.returncode == NO_TESTS)
    print(f"{name:<14} {'passed' if good else 'FAILED'} {time.monotonic() - begun:6.1f} s", flush=True)
    if not good:
        print((done.stdout + done.stderr).rstrip(), flush=True)
    return good


def main(arguments: list[str]) -> int:
    """Runs all checks; returns the exit status."""
    if unknown := [word for word in arguments if word != "--tests"]:
        print(f"error: '{unknown[0]}' is unknown; there is only --tests.", file=sys.stderr)
        return 2
    if not (ROOT / "setup.cfg").is_file():
        print("error: the checks need a checkout, with setup.cfg and tests.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as docs:
        results = [passed(name, command) for name, command in checks(docs, bool(arguments)).items()]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
