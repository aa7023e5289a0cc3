"""Tables and figures from plan to picture at smoke scale: one of each kind; all of them are marked slow."""

import pathlib
import subprocess
import sys

import pytest
from matplotlib import image

from experiments.papers.catalogue import catalogue, item
from experiments.papers.items import Analysis, Item, Sketch, file_stem
from experiments.reproduction.request import Request
from fedwin.errors import UserError


@pytest.fixture(scope="module")
def out_dir(tmp_path_factory):
    """One folder for all tests, so that they share runs as users do."""
    return tmp_path_factory.mktemp("papers")


def covering(one):
    """Returns cells of an item in which every row, column, variant and override comes at least once."""
    chosen, seen = [], set()
    for cell in one.cells("smoke"):
        entries = (cell.row, cell.column, cell.variant)
        met = {("override", override.variation.name) for override in one.overrides if override.applies_to(*entries)}
        shown = met | set(zip(("row", "column", "variant"), cell.position, strict=True))
        if not shown <= seen:
            chosen.append(cell)
            seen |= shown
    return chosen


def reproduced(out_dir, one, few=None):
    """Reproduces an item, or a few of its cells; returns the names of what was written."""
    request = Request(scale="smoke", out_dir=out_dir)
    cells = {one.name: covering(one)[:few]} if isinstance(one, Item) else {}
    request.execute([one], cells)
    stem = file_stem(one)
    written = sorted(path.name for path in request.tables.glob(f"{stem}*"))
    for path in request.tables.glob(f"{stem}*.png"):
        assert image.imread(path).std() > 0.01  # something is drawn
    return written


@pytest.mark.parametrize(
    "name, few, kinds",
    [
        ("wima/figure3", 2, {"csv", "md", "png"}),  # a sweep
        ("wima/figure1", 2, {"csv", "md", "png"}),  # curves
        pytest.param("ima/figure5b", None, {"json", "png"}, marks=pytest.mark.slow),  # an analysis of trained models
        ("wsm/figure3_1", None, {"json", "png"}),  # needs no run
    ],
)
def test_one_of_each_kind(out_dir, name, few, kinds):
    assert {path.rpartition(".")[2] for path in reproduced(out_dir, item(name), few)} == kinds


def test_missing_data_is_an_error(tmp_path, capsys):
    one = item("wima/table3")
    with pytest.raises(UserError, match="2 run.* refused.*--data_dir"):
        Request(scale="trend", out_dir=tmp_path, afresh=True).execute([one], {one.name: one.cells("trend")})
    assert capsys.readouterr().out.count("refused: ") == 2


def test_a_sketch_is_no_error(tmp_path, capsys):
    request = Request(scale="trend", out_dir=tmp_path)
    request.execute([item("ghb/figure5")], {})
    assert not list(request.tables.iterdir()) and capsys.readouterr().out.count("\n") <= 1


@pytest.mark.slow
def test_the_module_takes_items_as_the_command_does():
    line = [sys.executable, "-m", "experiments.reproduce", "wima/table2", "--row=scaffold", "--print_flags"]
    ended = subprocess.run(line, cwd=pathlib.Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert ended.returncode == 0 and "--algorithm=scaffold" in ended.stdout.splitlines(), ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", list(catalogue()))
def test_every_item(out_dir, name):
    one = item(name)
    if isinstance(one, Sketch) or not (one.trajectories("smoke") if isinstance(one, Analysis) else one.cells("smoke")):
        assert reproduced(out_dir, one) == []  # there is nothing, and that is no error
    else:
        assert reproduced(out_dir, one)
