"""The installed wheel next to FedJAX, in a separate environment."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

from experiments.reproduction.results import RESULTS
from tests.programs import ROOT, output_of

LEFT_OUT = {".git", ".venv", "build", "dist", "runs", ".hypothesis", ".pytest_cache", ".ruff_cache", ".mypy_cache"}
SMALL = ["--num_rounds=2", "--eval_every=1", "--num_clients=4", "--clients_per_round=2", "--eval_examples=20"]

# Runs a command without this checkout on the path.
run = functools.partial(output_of, PYTHONPATH="")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the checkout, which nothing was built in."""
    copy = tmp_path_factory.mktemp("source") / "fedwin"
    at_top = lambda folder, names: [n for n in names if pathlib.Path(folder) == ROOT and n in LEFT_OUT]
    built = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT, copy, ignore=lambda folder, names: {*at_top(folder, names), *built(folder, names)})
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(source / "tests" / "golden", source / "build" / "lib" / "fedwin" / "tests")  # an earlier build's
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ".", cwd=source)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of the commands of an environment that has the wheel, and all else from that of the tests."""
    venv = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=venv)
    python = venv / "bin" / "python"
    packages = pathlib.Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=venv).strip()
    )
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel, cwd=venv)
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv / "bin"


def test_the_wheel_holds_fedwin_alone(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].removesuffix(".dist-info").partition("-")[0] for name in names} == {"fedwin"}
    for name in (
        "py.typed",
        "registry/papers.bib",
        "experiments/flags/digits_scaffold_wima.flags",
        "experiments/figures/panels.mplstyle",
        "experiments/papers/assumptions.md",
        "experiments/papers/claims.csv",
        "experiments/notebooks/tour.ipynb",
        "experiments/papers/survey/scaffold.md",
        "experiments/viewer/charts.json",
        "experiments/reproduction/results.md",
        "experiments/results/trend/ima_figure1a.json",
    ):
        assert f"fedwin/{name}" in names
    assert not [name for name in names if "/tools/" in name or "/tests/" in name or name.endswith("/bench.py")]


def test_the_source_distribution_holds_what_tests_need(source, tmp_path):
    pytest.importorskip("setuptools")
    run(sys.executable, "setup.py", "-q", "sdist", "-d", tmp_path, cwd=source)
    held = {name.partition("/")[2] for name in tarfile.open(next(tmp_path.glob("*.tar.gz"))).getnames()}
    wanted = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    unwanted = ("fedwin.egg-info", "build/")
    missing = {name for name in wanted - held if not name.startswith(unwanted) and "__pycache__" not in name}
    assert not missing


def test_fedjax_keeps_its_experiments(installed, tmp_path):
    told = run(installed / "python", "-c", "import experiments; print(list(experiments.__path__))", cwd=tmp_path)
    assert "fedwin" not in told
    code = "import fedwin, sys; fedwin.data, fedwin.models; print([m for m in sys.modules if 'experiments' in m])"
    assert run(installed / "python", "-c", code, cwd=tmp_path).strip() == "[]"


def test_training_from_an_empty_folder(installed, tmp_path):
    arguments = "--dataset=cifar10_synthetic:n=200,tests=40 --model=mlp --partition=iid --batch_size=10".split() + SMALL
    assert "fedavg" in run(installed / "fedwin", "train", *arguments, "--out_dir=mine", cwd=tmp_path)
    preset = ["--flagfile=digits_scaffold_wima", *SMALL, "--final_evals=1", "--partition=iid", "--out_dir=preset"]
    assert "wima50" in run(installed / "fedwin", "train", *preset, cwd=tmp_path)
    assert "scaffold" in run(installed / "fedwin", "list", "runs", ".", cwd=tmp_path)
    asked = ("reproduce", "wima/table2", "--row=scaffold", "--column=cifar10_alpha0", "--print_flags")
    assert "--algorithm=scaffold" in run(installed / "fedwin", *asked, cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "preset"}


def test_stored_results_travel_with_the_wheel_and_nothing_is_written_into_it(installed, tmp_path):
    package = pathlib.Path(
        run(installed / "python", "-c", "import fedwin; print(fedwin.__path__[0])", cwd=tmp_path).strip()
    )
    files = lambda: {p: p.stat().st_mtime_ns for p in package.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    before = files()
    pattern = r"(?s)### ima/figure5 .*?\*\*holds\*\* \| (\S+ points)"
    gain = re.search(pattern, (RESULTS / "ima.md").read_text())[1]
    text = run(
        installed / "fedwin", "reproduce", "ima/figure5", "--from_results", "--page", "--out_dir=mine", cwd=tmp_path
    )
    assert gain in text and (tmp_path / "mine" / "results" / "tables" / "trend" / "ima_figure5.csv").is_file()
    assert "ima.md" in (tmp_path / "mine" / "RESULTS.md").read_text()
    assert gain in (tmp_path / "mine" / "results" / "ima.md").read_text()
    for name in ("tables/trend/survey_table3.csv", "tables/paper/ima_table1.csv"):
        assert (tmp_path / "mine" / "results" / name).read_text() == (RESULTS / name).read_text()
    refused = [installed / "fedwin", "reproduce", "wima/table4", "--scale=smoke", "--keep"]
    environment = os.environ | {"PYTHONPATH": ""}
    done = subprocess.run(refused, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 2 and "--keep stores results in a checkout" in done.stderr
    assert files() == before
