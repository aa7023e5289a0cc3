"""Runs all checks that a change must pass; one line per check, exit status 1 if any fails.

python -m experiments.check             format, lint, types, doctests, README, documentation site
python -m experiments.check --tests     the quick test suite, too
"""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import time

from absl import flags

from fedwin.errors import UserError

from .cli import subcommand

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The check that needs the extra `docs`.
SITE = "site"
# pytest's status for a folder without tests.
NO_TESTS = 5


def checks(docs: str, tests: bool = False) -> dict[str, list[str]]:
    """Returns name -> command, to be run by this interpreter with -m."""
    commands = {
        "format": ["ruff", "format", "--check", "."],
        "lint": ["ruff", "check", "."],
        "types": ["mypy"],
        "doctests": [
            *("pytest", "--doctest-modules", "fedwin"),
            *(f"experiments/{folder}" for folder in ("papers", "reproduction", "tables")),
        ],
        "README": [f"{__package__}.readme", "--check"],
        SITE: [f"{__package__}.docs", "--nogallery", f"--out={docs}"],
    }
    return commands | ({"tests": ["pytest", "-n", "auto", "--maxprocesses=8", "--dist=worksteal"]} if tests else {})


def passed(name: str, command: list[str]) -> bool:
    """Runs one check, prints its line (and its output, if it failed) and returns whether it passed.

    Args:
      command: to be run with -m.
    """
    if importlib.util.find_spec(command[0]) is None or (
        name == SITE and not importlib.util.find_spec("sphinx_gallery")
    ):
        print(f"{name:<14} skipped: its tool is not installed (pip install '.[test,docs]')", flush=True)
        return True
    start = time.monotonic()
    process = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    success = process.returncode == 0 or (name == "doctests" and process.returncode == NO_TESTS)
    print(f"{name:<14} {'passed' if success else 'FAILED'} {time.monotonic() - start:6.1f} s", flush=True)
    if not success:
        print((process.stdout + process.stderr).rstrip(), flush=True)
    return success


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_bool("tests", False, "Run the quick test suite, too.")
    return {"flags": ["tests"]}


def main(argv: list[str]) -> None:
    """Runs all checks; ends with status 1 if any fails."""
    if not (ROOT / "setup.cfg").is_file():
        raise UserError("the checks need a checkout, with setup.cfg and tests.")
    with tempfile.TemporaryDirectory() as docs:
        results = [passed(name, command) for name, command in checks(docs, flags.FLAGS.tests).items()]
    sys.exit(int(not all(results)))


if __name__ == "__main__":
    subcommand.run(main, define_flags)
