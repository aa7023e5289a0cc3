"""Executes the code cells of every notebook."""

import json
import pathlib
import sys

import pytest

import experiments

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[2] / "experiments" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    # The name by which it is installed; in a checkout the folder has another.
    monkeypatch.setitem(sys.modules, "fedwin.experiments", experiments)
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert code
    space = {}
    for cell in code:
        exec(compile("\n".join(x for x in cell.splitlines() if not x.startswith("%")), path.name, "exec"), space)
    assert space["summary"]["over_seeds"]["model"]["accuracy"]["mean"] > 0.2
