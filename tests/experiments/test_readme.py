"""What the README says is true."""

import pathlib
import re

from experiments import readme

TEXT = readme.README.read_text()


def test_the_generated_parts_are_up_to_date():
    assert readme.generated(TEXT) == TEXT, "run `python -m experiments.readme`"


def test_ci_runs_the_readmes_test_command():
    script = (readme.README.parent / ".ci" / "run").read_text()
    assert "README.md" in script and "<!-- test command -->" in script
    assert re.search(r"<!-- test command -->\n```bash\n.*pytest.*\n```", TEXT)


def test_the_own_algorithm_passes_the_contract_suite_and_is_short():
    code = re.search(r"<!-- own algorithm -->\n```python\n(.*?)```", TEXT, re.S)[1]
    assert len(code.splitlines()) <= 40
    from fedwin.algorithms import ALGORITHMS

    try:
        exec(compile(code, "README.md", "exec"), {})
        assert ALGORITHMS.check("fedema:beta=0.5")
    finally:
        ALGORITHMS.pop("fedema", None)


def test_files_that_it_names_exist():
    root = pathlib.Path(readme.README).parent
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", TEXT):
        assert (root / link).exists(), link
    for flagfile in re.findall(r"--flagfile=(\S+)", TEXT):
        assert (root / flagfile).exists(), flagfile
