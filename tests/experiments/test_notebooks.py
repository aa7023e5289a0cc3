"""Executes the code cells of every notebook, and checks the committed outputs."""

import json
import pathlib
import sys

import pytest

import experiments

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[2] / "experiments" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_committed_with_its_outputs(path):
    """Every cell that draws shows a picture: a figure that is not pyplot's is shown as the value of its cell alone."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    pictures = 0
    for cell in cells:
        assert cell["execution_count"] is not None, "".join(cell["source"])
        assert all(output["output_type"] != "error" for output in cell["outputs"])
        shows = any("image/png" in output.get("data", {}) for output in cell["outputs"])
        pictures += shows
        assert shows == any(word in "".join(cell["source"]) for word in (".draw(", "plt.plot")), cell["source"]
    assert pictures and path.stat().st_size < 200_000


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
    space = {}
    for cell in code:
        exec(compile("\n".join(x for x in cell.splitlines() if not x.startswith("%")), path.name, "exec"), space)
    assert space["summary"]["over_seeds"]["model"]["accuracy"]["mean"] > 0.2
