"""The command `fedwin`: subcommands, help, presets, lists, and user errors as one line."""

import json
import os
import re
import runpy
import sys

import pytest
from absl import flags

from experiments import citation as citation_command
from experiments import cli
from experiments import list as list_command
from experiments.cli import helptext
from fedwin.citations import citation
from fedwin.files import locked
from tests.experiments.test_readme import block
from tests.misuse import calls
from tests.misuse.calls import called, own_flags
from tests.refusals import refused
from tests.small_runs import run_in, small


def test_alone_it_names_its_subcommands(capsys):
    for arguments in ([], ["--help"]):
        cli.main(arguments)
        said = capsys.readouterr().out
        assert all(f"fedwin {name} " in said for name in cli.ALL) and len(said.splitlines()) < 22


def test_a_removed_working_directory_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert called("list", "models").lines == ["error: the working directory has been removed; change to another one."]


def test_an_unknown_subcommand_is_one_line(tmp_path):
    calls.refused(tmp_path, "error: unknown command 'trian'. Did you mean 'train'?", "trian")


def test_a_tool_without_a_checkout_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None)
    for name in cli.TOOLS:
        calls.refused(tmp_path, f"`fedwin {name}` needs a checkout", name)


def as_module(name, *arguments):
    """Returns how `python -m experiments.NAME ...` ends, run in this process."""
    module = f"experiments.{name}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module, *arguments])
        patch.delitem(sys.modules, module, raising=False)  # run_module warns of a module that is already imported
        return calls.ended(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True))


@pytest.mark.parametrize("name", cli.ALL)
def test_the_module_of_a_subcommand_is_the_subcommand(name):
    """`python -m experiments.NAME` and `fedwin NAME` print one help, of three screens, and take the same arguments."""
    usage = re.compile(rf"^usage: (fedwin|python -m experiments\.){name}|^usage: fedwin {name}", re.MULTILINE)
    for arguments in (["--help"], ["nothing", "--nosuchflag"]):
        alone, ended = as_module(name, *arguments), called(name, *arguments)
        assert alone[:2] == ended[:2] and usage.sub("usage:", alone.out) == usage.sub("usage:", ended.out)
        lines = alone.out.splitlines()
        assert len(lines) <= 132 and all(len(line) <= 120 for line in lines)


def test_help_shows_defaults_and_the_other_form_of_a_boolean():
    with own_flags():
        flags.DEFINE_integer("rounds", 7, "Rounds.")
        flags.DEFINE_bool("shuffle", True, "Shuffle.")
        flags.DEFINE_multi_string("wrap", [], "Wrapper; repeats.")
        shown = helptext.text("fedwin name", "Doc.", {"group": ["rounds", "shuffle", "wrap"]})
    assert "--rounds=7" in shown and "--noshuffle" in shown and "Do not shuffle." in shown
    assert "repeat this option" not in shown


@pytest.mark.parametrize("kind", [kind for kind in list_command.LISTS if kind != "runs"])
def test_lists_fit_the_terminal(kind):
    lines = list_command.listing(kind, []).splitlines()
    assert len(lines) > 1 and max(map(len, lines)) <= 120


def test_lists_refuse_what_they_do_not_know():
    refused("Did you mean 'models'", list_command.listing, "modls", [])
    refused("unknown model 'lenet'. Did you mean 'lenet5'", list_command.listing, "models", ["lenet"])
    refused("unexpected argument 'more'", list_command.listing, "models", ["lenet5", "more"])
    refused("no such folder", list_command.listing, "runs", ["nowhere"])


def test_citation_takes_names_and_runs(tmp_path):
    assert citation_command.subject("scaffold") == "scaffold"
    refused("not the directory of a run", citation_command.subject, str(tmp_path))
    config = {"algorithm": "scaffold", "observe": ["ema"], "aggregate": "krum:f=1", "sampling": "weighted"}
    rest = {"data": {}, "versions": {"jax": "0"}, "device": "cpu x1", "strategy": "default", "fingerprint": ""}
    rest |= {"format": 1, "imports": {}, "initial": {}, "environment": {}}
    (tmp_path / "config.json").write_text(json.dumps({"config": config, **rest}))
    found = citation(citation_command.subject(str(tmp_path)))
    parts = ("karimireddy2020scaffold", "polyak1992acceleration", "blanchard2017machine", "madow1949theory")
    assert all(f"{{{key}," in found for key in parts)


def test_the_users_own_code_runs_in_an_empty_folder_and_is_listed(tmp_path, monkeypatch):
    (tmp_path / "my_methods.py").write_text(block("file: halfway.py", "python"))
    monkeypatch.chdir(tmp_path)
    flags = ["--dataset=digits", "--model=digits_mlp:hidden=8", "--num_rounds=2", "--num_clients=10"]
    flags += ["--clients_per_round=2", "--algorithm=halfway:share=0.3", "--out_dir=mine", "--strategy=chunked:k=1"]
    listed = called("list", "algorithms", "halfway", "--import=my_methods").out
    done = called("train", "--import=my_methods", *flags)
    assert "halfway" in listed and "share=0.5" in listed
    assert done.status == 0 and "halfway:share=0.3" in done.out and (tmp_path / "mine" / "summary.json").exists()
    runs = called("list", "runs", ".").out
    assert "halfway:share=0.3" in runs and "2 of 2" in runs and "finished" in runs
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link").symlink_to(tmp_path / "mine")
    assert ["link" in called("list", "runs", folder).out for folder in (".", "other")] == [False, True]
    calls.refused(tmp_path, "is a symbolic link; name", "runs", "--delete", "--yes", "other/link")
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    calls.refused(tmp_path, "add --yes", "runs", "--delete", "mine")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for answer, left in {"": True, "n": True, "y": False}.items():
        monkeypatch.setattr("builtins.input", lambda question, answer=answer: answer)
        assert called("runs", "--delete", ".").status == 0 and (tmp_path / "mine" / "config.json").exists() == left
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert "nothing was deleted" in called("runs", "--delete", "--yes", "mine").out


def test_a_run_in_training_is_not_deleted(tmp_path):
    config = {"algorithm": "fedavg", "dataset": "digits", "num_rounds": 8, "seeds": [0]}
    (tmp_path / "config.json").write_text(json.dumps({"config": config}))
    with locked(tmp_path):
        calls.refused(tmp_path, "is in use by", "runs", "--delete", "--yes", str(tmp_path))
    assert called("runs", "--delete", "--yes", str(tmp_path)).status == 0 and not tmp_path.exists()


def test_no_code_is_imported_from_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_in(small(num_rounds=1), "run")
    path, lines = tmp_path / "run" / "config.json", ("citation run", "figure labels run")
    contents = json.loads(path.read_text())
    contents["config"]["imports"] = ["foreign_code.py"]
    path.write_text(json.dumps(contents))
    (tmp_path / "run" / "SHA256SUMS").unlink()
    (tmp_path / "foreign_code.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    for line in lines:
        calls.refused(tmp_path, "run uses the code of foreign_code.py | --import=", *line.split())
    assert not (tmp_path / "executed").exists()
    for line in lines:
        ended = called(*line.split(), "--import=foreign_code.py")
        assert ended.status == 0 and (tmp_path / "executed").exists(), ended.lines


@pytest.mark.parametrize("line", ["citation .", "figure labels .", "curves x.tar.xz"])
def test_a_pipe_in_place_of_a_file_is_refused(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("config.json", "x.tar.xz", "stored.json"):
        os.mkfifo(name)
    calls.refused(tmp_path, "not the directory of a run" if " ." in line else "not a regular file", *line.split())
