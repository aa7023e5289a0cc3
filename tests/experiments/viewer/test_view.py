"""The subcommand `fedwin view`."""

import json

import pytest

from experiments import view
from experiments.viewer import page
from tests.experiments.viewer.runs_to_view import stored, unpacked
from tests.misuse import calls
from tests.refusals import refused


@pytest.fixture(autouse=True)
def library(monkeypatch):
    """A page without the plotting library, which takes seconds to bundle."""
    monkeypatch.setattr(page, "library", lambda: "window.library = 1")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BROWSER", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def test_it_writes_one_file(folder):
    path = stored(folder.parent / "a.tar.xz", rounds=3)
    ended = calls.called("view", str(path), "--out=shown", "--title=Two & three")
    assert ended.status == 0 and "shown.html (1 run" in ended.out
    text = (folder.parent / "shown.html").read_text()
    assert "<title>Two &amp; three</title>" in text and unpacked(text)["runs"][0]["name"] == "a.tar.xz"


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "no runs in runs; name a folder that contains runs"),
        (["nothing"], "nothing: neither a folder nor a packed run"),
        (["--out=a.png"], "write --out=a.html"),
        (["--every=3"], "--every has no effect without --watch"),
        (["--results", "runs"], "omit 'runs', or --results"),
    ],
)
def test_errors_are_one_line_with_a_remedy(folder, arguments, words):
    calls.refused(folder.parent, words, "view", *arguments)


def test_a_damaged_run_is_left_out_and_named(folder, capsys):
    stored(folder / "good.tar.xz", rounds=3)
    bad = folder / "bad"
    bad.mkdir()
    (bad / "config.json").write_text(json.dumps({"format": 3}))
    paths = [str(folder / "good.tar.xz"), str(bad)]
    view.write(paths, "title", folder / "view.html", "")
    data = unpacked((folder / "view.html").read_text())
    assert [run["name"] for run in data["runs"]] == ["good.tar.xz"]
    assert len(data["left_out"]) == 1 and str(bad) in data["left_out"][0] and str(bad) in capsys.readouterr().err
    refused("config.json", view.read, [str(bad)])


def test_watching_writes_again_when_a_run_has_changed(folder, capsys, monkeypatch):
    path, out = stored(folder / "a.tar.xz", rounds=3), folder / "view.html"
    paths = [str(path), str(stored(folder / "b.tar.xz", rounds=3))]
    shown = view.stamps(paths)
    view.write(paths, "title", out, "", reload=2)
    assert unpacked(out.read_text())["reload"] == 2
    stored(path, rounds=5)
    looks = iter(range(3))
    monkeypatch.setattr(view.time, "sleep", lambda seconds: next(looks))
    with pytest.raises(StopIteration):
        view.watch(paths, shown, lambda: view.write(paths, "title", out, ""), every=0)
    data = unpacked(out.read_text())
    assert [run["settings"]["round"] for run in data["runs"]] == [5, 3] and data["reload"] == 0
    assert capsys.readouterr().out.count("page ") == 2  # once for the change
    path.unlink()
    looks = iter(range(1))
    with pytest.raises(StopIteration):
        view.watch(paths, shown, lambda: None, every=0)
    assert "note: " in capsys.readouterr().err
