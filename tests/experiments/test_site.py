"""The documentation site: staged pages, the code of the how-to guides, the gallery, and Sphinx's strict build."""

import importlib.util
import re
import runpy
import sys

import pytest

import experiments
import fedwin
from experiments import docs, readme
from experiments.reproduction import page as results_page
from experiments.tools.site import staging
from tests.experiments import test_guide
from tests.experiments.viewer.runs_to_view import unpacked
from tests.programs import output_of

ROOT = readme.README.parent
GUIDE = readme.GUIDE
GALLERY = sorted((GUIDE / "gallery").glob("*.py"))
# Pages whose blocks run; those of other pages have tests of their own, or need files and services.
PAGES = (
    "start", "concepts", "own_algorithm", "own_data", "own_model", "clients", "seeds", "machines", "gpus", "privacy",
    "running", "search", "callbacks", "participation", "local_work", "compression", "robust", "personal_and_fair",
    "simulated_clock", "asynchronous", "feedback", "diloco", "index", "own_parts", "heterogeneity", "pictures", "scale",
)  # fmt: skip
# Commands that need the user's files, another machine, a checkout or a network.
NOT_RUN = re.compile(r"\bDIR\b|\.\.\.|^(python3|pip|gcloud|srun) |^python -m experiments\.bench\b|--distributed")
BLOCK = re.compile(r"((?:<!-- .+? -->\n)?)```(python|bash)\n(.*?)```", re.DOTALL)


def blocks(page):
    """Returns (comment, language, code) of the blocks of a page that run."""
    found = BLOCK.findall((GUIDE / f"{page}.md").read_text())
    return [block for block in found if not block[0].startswith(("<!-- not run: ", "<!-- getting the model out"))]


def commands(code):
    """Returns the lines of a shell block that are commands, without the comments at their ends."""
    lines = [re.sub(r"\s# .*", "", line).strip() for line in code.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_the_reference_has_every_public_name():
    text = "".join(staging.reference().values())
    for name, module in fedwin._EXPORTS.items():
        assert f".. automodule:: {module}\n" in text, name
    assert "fedwin.experiments" not in text
    modules = {path.stem for path in (ROOT / "fedwin").glob("[!_]*") if path.is_dir() or path.suffix == ".py"}
    assert fedwin._SUBMODULES == modules
    assert set(re.findall(r"^(?:from .* as )?(\w+)(?: = .*)?$", fedwin._STUB, re.M)) == {*fedwin._EXPORTS, *modules}


def test_the_citation_has_the_version():
    assert f"\nversion: {fedwin.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_how_to_guide_parses(page):
    known = blocks(page)
    assert known
    for _, language, code in known:
        if language == "python":
            compile(code, page, "exec")
            continue
        for line in commands(code):
            assert line.split()[0] in ("fedwin", "python", "python3", "pip", "gcloud", "srun"), line


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_how_to_guide_runs(page, tmp_path):
    """Files that the page names are written first; Python blocks are one program, run where the first one stands."""
    program, script = [], ["set -e", 'fedwin() { python -m experiments "$@"; }', 'python() { "$PYTHON" "$@"; }']
    for comment, language, code in blocks(page):
        if name := re.match(r"<!-- file: (\S+) -->", comment):
            (tmp_path / name[1]).write_text(code)
        elif language == "python":
            script += [] if program else ["python program_of_the_page.py"]
            program += [code] if test_guide.installed(code) else []
        else:
            script += [line for line in commands(code) if not NOT_RUN.search(line) and test_guide.installed(line)]
    (tmp_path / "program_of_the_page.py").write_text("\n".join(program))
    output_of("bash", "-c", "\n".join(script), cwd=tmp_path, MPLBACKEND="agg", PYTHON=sys.executable)


@pytest.mark.parametrize(
    "path",
    [path if "partition" in path.stem else pytest.param(path, marks=pytest.mark.slow)
     for path in GALLERY],
    ids=lambda path: path.stem,
)  # fmt: skip
def test_an_example_of_the_gallery_draws(path, tmp_path, monkeypatch):
    pytest.importorskip("dp_accounting") if "privacy" in path.stem else None
    from matplotlib.figure import Figure

    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    # The name by which it is installed; in a checkout the folder has another.
    monkeypatch.setitem(sys.modules, "fedwin.experiments", experiments)
    drawn = [value for value in runpy.run_path(str(path)).values() if isinstance(value, Figure)]
    assert drawn and any(axis.has_data() for axis in drawn[-1].axes)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    """A link that leads nowhere, a missing reference or a page that no table of contents has is an error."""
    if missing := [name for name in docs.NEEDED if importlib.util.find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(missing)} (extra docs)")
    assert docs.build(tmp_path, gallery=False) == 0
    site = tmp_path / "html"
    for page in ("index", "start", "glossary", "gallery/index", "results/wima", "reference/fedwin.core", "changelog"):
        assert (site / f"{page}.html").is_file(), page
    assert "searchindex.js" in (site / "search.html").read_text()
    start = (site / "index.html").read_text()
    assert "copybutton.js" in start and start.count("Search</span>") == 1 and 'src="_images/digits.png"' in start
    viewer = site / staging.VIEWER
    headings = {group["heading"] for group in unpacked(viewer.read_text())["groups"]}
    assert set(results_page.TITLES) <= headings and viewer.stat().st_size < 5_000_000
