"""Grids: syntax, directories of their points, and conversion of a Config to a command line."""

import dataclasses
import shlex

import pytest
from absl import flags

from experiments.cli import command_line, config_flags
from experiments.tables import grid
from fedwin.runs.config import Config
from tests.refusals import refused

BASE = Config(out_dir="runs/s", observe=["ema"])


def test_values_are_separated_by_commas_or_semicolons():
    assert grid.parse(["client_lr=0.01, 0.1", "--algorithm=fedprox:mu=0.1,server_lr=1;fedavg"]) == {
        "client_lr": [0.01, 0.1],
        "algorithm": ["fedprox:mu=0.1,server_lr=1", "fedavg"],
    }
    assert grid.parse(["shuffle=true,false", "num_rounds=5", "observe=none;wima:window=5,part=features"]) == {
        "shuffle": [True, False],
        "num_rounds": [5],
        "observe": [[], ["wima:window=5,part=features"]],
    }
    assert len(grid.parse(["wrap=ima:start=1;ima:start=1.0"])["wrap"]) == 2  # a round and a share


@pytest.mark.parametrize(
    "texts, message",
    [
        ([], "at least one axis"),
        (["client_lr"], "is not FLAG=VALUE"),
        (["client_lr="], "a value is empty"),
        (["client_lr=1", "client_lr=2"], "client_lr is given twice"),
        (["client_lr=0.1,1e-1"], "1e-1 is given twice"),
        (["algorithm=fedprox:mu=0.1;fedprox:mu=0.10"], "fedprox:mu=0.10 is given twice"),
        (["clientlr=1"], "Did you mean 'client_lr'"),
        (["mu=0,1"], "--grid='algorithm=NAME:mu=1;NAME:mu=2'"),
        (["num_rounds=1.5"], "must be an integer"),
        (["shuffle=perhaps"], "true or false"),
        (["seeds=0,1"], "all of --seeds"),
    ],
)
def test_a_bad_axis_is_one_line(texts, message):
    assert refused([message], grid.parse, texts).startswith("grid")


def test_every_point_has_a_directory_named_by_what_differs():
    axes = grid.parse(["client_lr=0.10,1e-9", "algorithm=fedprox:mu=0.1;fedavg", "observe=none;wima:window=5"])
    found = grid.configs(BASE, axes)
    assert len({config.out_dir for config in found.values()}) == 8
    first = found["client_lr=0.1 algorithm=fedprox:mu=0.1 observe=none"]
    assert first.out_dir == "runs/s/client_lr_0.1_algorithm_fedprox_mu_0.1_observe_none"
    assert (first.client_lr, first.algorithm, first.observe) == (0.1, "fedprox:mu=0.1", ["ema"])
    assert found["client_lr=1e-09 algorithm=fedavg observe=wima:window=5"].observe == ["ema", "wima:window=5"]


def test_a_directory_depends_on_its_point_alone():
    """A grid that grows finds its finished runs again; what a name cannot say, its hash does."""
    small, large = (grid.configs(BASE, {"client_lr": values}) for values in ([0.1], [0.5, 0.1]))
    assert small["client_lr=0.1"] == large["client_lr=0.1"]
    places = {
        grid.directory_name({"partition": f"csv:path={text}"})
        for text in ("/a/b", "/a b", "/a_b", "a" * 400, "a" * 401)
    }
    assert len(places) == 5 and max(map(len, places)) < 230


def test_a_command_makes_its_config_again():
    config = dataclasses.replace(
        BASE,
        algorithm="fedcm:alpha=0.1",
        partition='csv:path="/a b/split.csv"',
        wrap=["ima:window=5,start=0.75", "local_bn"],
        imports=["my methods.py", "other"],
        shuffle=False,
        eval_val=True,
        val_fraction=0.1,
        client_lr=1e-9,
        seeds=[3, 4],
    )
    known = flags.FlagValues()
    config_flags.define(known)
    flags.DEFINE_multi_string("import", [], "", flag_values=known)
    assert known(["fedwin", *shlex.split(command_line.train_command(config))[2:]]) == ["fedwin"]
    assert config_flags.config_from_flags(known) == config
    # Without a flag that decides anything, `fedwin train` would be the main job.
    assert command_line.train_command(Config()) == "fedwin train --dataset=digits --algorithm=fedavg"
