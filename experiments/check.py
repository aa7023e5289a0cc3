"""Runs all checks that a change must pass; one line per check, exit status 1 if any fails.

python -m experiments.check             format, lint, types, doctests, README, documentation site
python -m experiments.check --tests     the quick test suite, too
python -m experiments.check --fast      format, lint and README, as before every commit
python -m experiments.check --release   that nothing keeps this version from being released
python -m experiments.check --job=wheel the commands of a job of .github/workflows, in a clone of the last commit
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import venv

import yaml  # type: ignore[import-untyped]
from absl import flags

import fedwin
from fedwin.errors import UserError
from fedwin.registry.ranges import one_of

from .cli import subcommand, unused

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The check that needs the extra `docs`.
SITE = "site"
# Checks of a few seconds.
FAST = ("format", "lint", "README")
# Stands for what only the owner of the repository knows: its address, authors, contacts.
PLACEHOLDER = "OWNER"
PUBLISHED = ("setup.cfg", "CITATION.cff", "README.md", ".github/*.md", ".github/*/*.md", "experiments/paper/paper.md")


def checks(docs: str, tests: bool = False) -> dict[str, list[str]]:
    """Returns name -> command, to be run by this interpreter with -m."""
    commands = {
        "format": ["ruff", "format", "--check", "."],
        "lint": ["ruff", "check", "."],
        "types": ["mypy"],
        "doctests": [
            *("pytest", "--doctest-modules", "fedwin"),
            *(f"experiments/{folder}" for folder in ("bench.py", "cli", "figures", "papers", "reproduction", "tables")),
        ],
        "README": [f"{__package__}.readme", "--check"],
        SITE: [f"{__package__}.docs", "--nogallery", f"--out={docs}"],
    }
    return commands | ({"tests": ["pytest", "-n", "auto", "--maxprocesses=8", "--dist=worksteal"]} if tests else {})


def passed(name: str, command: list[str]) -> bool:
    """Runs one check with -m, prints its line (and its output, if it failed) and returns whether it passed."""
    if importlib.util.find_spec(command[0]) is None or (
        name == SITE and not importlib.util.find_spec("sphinx_gallery")
    ):
        print(f"{name:<14} skipped: its tool is not installed (pip install '.[test,docs]')", flush=True)
        return True
    start = time.monotonic()
    process = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    success = process.returncode == 0
    print(f"{name:<14} {'passed' if success else 'FAILED'} {time.monotonic() - start:6.1f} s", flush=True)
    if not success:
        print((process.stdout + process.stderr).rstrip(), flush=True)
    return success


def unreleased(root: pathlib.Path = ROOT) -> list[str]:
    """Returns what keeps the version of a tree from being released, one line each: placeholders, a missing date."""
    found = [
        f"{path.relative_to(root)}:{number}: replace {PLACEHOLDER}: {text.strip()}"
        for path in (path for pattern in PUBLISHED for path in sorted(root.glob(pattern)))
        for number, text in enumerate(path.read_text().splitlines(), start=1)
        if PLACEHOLDER in text
    ]
    date = re.search(r"^date-released: (\S+)$", (root / "CITATION.cff").read_text(), re.M)
    heading = f"## {fedwin.__version__}, {date[1] if date else 'YYYY-MM-DD'}"
    first = re.search(r"^## .+$", (root / "CHANGELOG.md").read_text(), re.M)
    if first is None or first[0] != heading:
        found.append(f"CHANGELOG.md: the first section is not '{heading}', the version and the date of CITATION.cff")
    return found


def jobs() -> dict[str, list[str]]:
    """Returns job -> its shell commands, of the workflows and of Read the Docs."""
    found = {"readthedocs": yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())["build"]["commands"]}
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            found[name] = [step["run"] for step in job["steps"] if "run" in step]
    return found


def run_job(name: str) -> bool:
    """Runs the commands of a job in a clone of the last commit; returns whether all of them succeeded."""
    with tempfile.TemporaryDirectory() as folder:
        clone, environment = f"{folder}/fedwin", f"{folder}/environment"
        subprocess.run(["git", "clone", "-q", str(ROOT), clone], check=True)
        venv.create(environment, with_pip=True)
        given = {"GITHUB_REF_NAME": f"v{fedwin.__version__}", "READTHEDOCS_OUTPUT": f"{folder}/site"}
        variables = os.environ | given | {"PATH": f"{environment}/bin{os.pathsep}{os.environ['PATH']}"}
        for command in jobs()[name]:
            print(f"+ {command}", flush=True)
            if subprocess.run(["bash", "-eo", "pipefail", "-c", command], cwd=clone, env=variables).returncode:
                return False
    return True


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_bool("tests", False, "Run the quick test suite, too.")
    flags.DEFINE_bool("fast", False, f"Run {', '.join(FAST)} alone.")
    flags.DEFINE_bool("release", False, "Only check that nothing keeps this version from being released.")
    flags.DEFINE_string("job", "", "Only run a job of the workflows, in a clone of the last commit.")
    return {"flags": ["tests", "fast", "release", "job"]}


def main(argv: list[str]) -> None:
    """Runs all checks; ends with status 1 if any fails."""
    if not (ROOT / "setup.cfg").is_file():
        raise UserError("the checks need a checkout, with setup.cfg and tests.")
    modes = [name for name in ("release", "job", "fast", "tests") if flags.FLAGS[name].value]
    unused.refuse(modes[1:], f"with --{modes[0]}" if modes else "")
    if flags.FLAGS.release:
        sys.exit("\n".join(unreleased()) or 0)
    if name := flags.FLAGS.job:
        one_of("job", name, jobs())
        sys.exit(int(not run_job(name)))
    with tempfile.TemporaryDirectory() as docs:
        commands = checks(docs, flags.FLAGS.tests)
        results = [passed(name, commands[name]) for name in (FAST if flags.FLAGS.fast else commands)]
    sys.exit(int(not all(results)))


if __name__ == "__main__":
    subcommand.run(main, define_flags)
