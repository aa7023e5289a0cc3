"""The command lines of the guide's table of tasks."""

import importlib
import importlib.util
import re
import shlex
import sys

import pytest
from absl import flags

from experiments import cli, readme
from experiments.cli import config_flags, subcommand
from fedwin.callbacks import stopping
from fedwin.callbacks.trackers import TRACKERS
from fedwin.runs.choices import check_choices
from fedwin.runs.start import init_source
from tests.misuse.calls import own_flags
from tests.programs import output_of

PAGE = (readme.GUIDE / "tasks.md").read_text()
LINES = dict(re.findall(r"^\| (.+?) \| `(.+)` \|$", PAGE, re.M))
# Program or flag -> package that it needs.
EXTRAS = {
    "tensorboard": "tensorboard", "track=wandb": "wandb", "track=mlflow": "mlflow", "track=trackio": "trackio",
    "pandas": "pandas", "wrap=dp": "dp_accounting", ".safetensors": "safetensors", "dataset=hf": "datasets",
    "search=optuna": "optuna", "fedwin view": "vl_convert",
}  # fmt: skip


@pytest.mark.parametrize("task", LINES)
def test_a_line_parses_and_its_choices_exist(task):
    program, name, *arguments = shlex.split(LINES[task])
    if program != "fedwin":
        assert program in ("python", "tensorboard")
        return
    assert name in cli.SUBCOMMANDS
    with own_flags():
        importlib.import_module(f"experiments.{name}").define_flags()
        subcommand.define_import()
        rest = flags.FLAGS([name, *arguments])[1:]
        assert bool(rest) == (name in ("export", "figure", "curves", "view")), rest
        if name != "train":
            return
        config = config_flags.config_from_flags()
    config.check()
    check_choices(config)
    for tracker in config.track:
        TRACKERS.check(tracker)
    if config.early_stopping:
        stopping.build(config.early_stopping, config.eval_val)
    if config.init_from:
        init_source(config.init_from)


def test_every_task_has_a_line_and_directories_of_runs_differ():
    assert PAGE.count("\n| ") == len(LINES) + 2
    outs = re.findall(r"out_dir=([^\s`]+)", PAGE)
    assert len(set(outs)) == len(outs)
    pages = [page.read_text() for page in readme.GUIDE.glob("*.md")]
    outs = [name for page in pages for name in set(re.findall(r"out_dir=\W?(runs/[\w/]+)", page))]
    assert sorted(set(outs)) == sorted(outs)


def installed(line):
    """Whether the packages of a line are installed."""
    return all(importlib.util.find_spec(package) for text, package in EXTRAS.items() if text in line)


@pytest.mark.slow
def test_all_lines_run_one_after_another(tmp_path):
    complete = [line for line in LINES.values() if "=DIR" not in line and not line.startswith("tensorboard")]
    run = list(filter(installed, complete))
    for line in run:
        program, *arguments = shlex.split(line)
        command = ["-m", "experiments", *arguments] if program == "fedwin" else arguments
        output_of(sys.executable, *command, cwd=tmp_path)
    assert len(run) >= 25
