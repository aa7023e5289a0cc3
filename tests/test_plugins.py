"""Plug-ins: loading by path, by name and by entry point; user errors in one line with their location."""

import importlib.metadata
import sys
import warnings

import pytest

import fedwin
from fedwin import plugins
from fedwin.losses import LOSSES
from tests.refusals import refused

CODE = "from fedwin import LOSSES\n\n\n@LOSSES.register('{name}')\ndef {name}(model):\n    '''A loss.'''\n"


def test_a_file_is_loaded_once_and_again_after_a_failure(tmp_path):
    path = tmp_path / "own_loss.py"
    path.write_text(CODE.format(name="own_loss") + "\n\nraise ValueError('later')\n")
    refused("ValueError in .*own_loss.py:", plugins.load, [str(path)])
    assert "own_loss" not in LOSSES and "own_loss" not in sys.modules
    path.write_text(CODE.format(name="own_loss"))
    first = fedwin.load_plugins([str(path)])
    assert "own_loss" in LOSSES and set(first) == {str(path)}
    assert plugins.load([str(path)]) == first
    with pytest.warns(UserWarning, match="has changed since"):
        path.write_text(path.read_text() + "\n")
        assert plugins.load([str(path)]) == first


def test_a_module_of_the_working_directory_and_its_neighbors(tmp_path, monkeypatch):
    (tmp_path / "by_name.py").write_text("import neighbor\n" + CODE.format(name="by_name"))
    (tmp_path / "neighbor.py").write_text("")
    monkeypatch.chdir(tmp_path)
    by_name = plugins.load(["by_name"])
    assert "by_name" in LOSSES and plugins.load(["by_name.py"])["by_name.py"] == by_name["by_name"]


def test_a_package_is_imported_again_after_a_failure_and_hashed_as_a_whole(tmp_path, monkeypatch):
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "part.py").write_text(CODE.format(name="in_part"))
    monkeypatch.chdir(tmp_path)
    for line, error in (("undefined", "NameError"), ("import nowhere", "ModuleNotFoundError")):
        (tmp_path / "own_package" / "__init__.py").write_text(f"from . import part\n{line}\n")
        refused(f"import=own_package.part: {error} in .*__init__.py:2", plugins.load, ["own_package.part"])
        assert "in_part" not in LOSSES
    (tmp_path / "own_package" / "__init__.py").write_text("from . import part\n")
    plugins.load(["own_package"])
    assert "in_part" in LOSSES
    (tmp_path / "own_package" / "part.py").write_text("")
    with pytest.warns(UserWarning, match="has changed since"):
        plugins.load(["own_package"])


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("broken_syntax.py", "def f(:\n", r"SyntaxError in .*broken_syntax.py:1: "),
        ("raises.py", "x = 1\nraise RuntimeError('no\\nway')\n", r"RuntimeError in .*raises.py:2: no\.$"),
        ("deep.py", "import jax\n\njax.random.key('a')\n", r"TypeError in .*deep.py:3: "),
        ("taken.py", CODE.format(name="cross_entropy"), "taken.py"),
        ("random.py", "", "a module 'random' exists already"),
        ("not-a-name.py", "", "is not the name of a module"),
    ],
)
def test_errors_in_user_code_are_one_line(tmp_path, name, code, said):
    (tmp_path / name).write_text(code)
    assert refused(said, plugins.load, [str(tmp_path / name)]).startswith("import=")


def test_what_shadows_a_library_is_refused(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("")
    monkeypatch.chdir(tmp_path)
    refused("a module 'numpy' exists already", plugins.load, ["numpy"])


def test_entry_points(tmp_path, monkeypatch):
    (tmp_path / "announced.py").write_text(CODE.format(name="announced"))
    (tmp_path / "faulty.py").write_text("raise RuntimeError('broken')")
    monkeypatch.syspath_prepend(tmp_path)
    points = [importlib.metadata.EntryPoint(name, name, plugins.GROUP) for name in ("announced", "faulty")]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = plugins.load()
    assert set(found) == {"announced"} and "announced" in LOSSES
    assert [str(w.message) for w in caught if "faulty" in str(w.message)]
