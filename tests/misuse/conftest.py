"""A folder of invalid files, and a guard against runs that start by mistake."""

import pathlib
import shutil

import pytest

from tests.misuse import calls

SLIP = """
from fedwin import ALGORITHMS


@ALGORITHMS.register("{name}")
def {name}(setting, solve):
    return {returned}
"""
FILES: dict[str, str | bytes] = {
    "afile": "x",
    "strangers/x.txt": "",
    "latin.flags": b"--num_rounds=3\n# \xe9\xff\n",
    "folder/config.json/x": "",
    "fieldless/config.json": '{"format": 1, "config": {"algorithm": "fedavg"}}',
    "own/leaves.py": "import sys\nsys.exit(3)\n",
    "own/number.py": SLIP.format(name="number", returned="3"),
    "own/divides.py": SLIP.format(name="divides", returned="1 / 0"),
    "columns.csv": "a,b\n1,2\n",
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> pathlib.Path:
    """A folder of odd files, which a rejected command leaves as it is."""
    folder = tmp_path_factory.mktemp("odd")
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.fixture
def refused(odd, monkeypatch):
    """(message, argument, ...) -> the line by which `fedwin SUBCOMMAND ...` is rejected; see calls.refused."""
    calls.no_run_begins(monkeypatch)
    monkeypatch.chdir(odd)
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(odd / "cache"))
    yield lambda said, *arguments: calls.refused(odd, said, *arguments)
    for name in ("run", "runs"):
        shutil.rmtree(odd / name, ignore_errors=True)
