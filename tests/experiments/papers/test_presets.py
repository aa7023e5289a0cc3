"""Presets: each parses, passes all checks and names registered choices; cells of tables by their names."""

import shlex

import pytest
from absl import flags

from experiments.cli import config_flags
from experiments.papers import presets
from experiments.papers.catalogue import item
from experiments.papers.cell_flags import cell_of, config_of, flag_text
from fedwin import data
from fedwin.algorithms import ALGORITHMS
from fedwin.models import MODELS
from fedwin.runs.choices import check_choices
from fedwin.wrappers import WRAPPERS
from tests.refusals import refused

# Examples of data sets that WIMA's clients share equally.
SHARED = {"cifar10": 50_000, "cifar100": 50_000, "cifar100_pam": 50_000}


def test_presets_are_files_and_cells_of_papers():
    assert len(presets.names()) == 26 and len(presets.CELLS) == 20
    assert presets.resolve(["train", "--flagfile=wima_femnist", "--x"])[1:-1] == [
        line for line in presets.text("wima_femnist").splitlines() if line.startswith("--")
    ]
    assert "--batching=repeat" in presets.resolve(["train", "--flagfile", "wima_femnist"])
    refused("Did you mean 'wima_femnist'", presets.expanded, "wima_femnits")


def test_files_name_files_and_presets_but_not_themselves(tmp_path):
    write = lambda name, *lines: (tmp_path / name).write_text("\n".join(lines))
    write("mine", "# my own", "--flagfile=wima_femnist", "", "  --num_rounds=3 ")
    write("outer", "--flagfile", "mine", "// beside this file", "--seeds=1,2")
    of_preset = presets.resolve(["--flagfile=wima_femnist"])
    assert presets.resolve([f"--flagfile={tmp_path}/outer"]) == [*of_preset, "--num_rounds=3", "--seeds=1,2"]
    write("circle", "--flagfile=way")
    write("way", "--flagfile=circle")
    for name, last in (("circle", "way"), ("way", "circle")):
        words = f"flagfile={name}: it is named again by .*{last}; remove that line"
        refused(words, presets.expanded, str(tmp_path / name))


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_is_runnable_and_names_command_time_and_numbers(name):
    text = presets.text(name)
    known = flags.FlagValues()
    config_flags.define(known)
    known(presets.resolve(["train", f"--flagfile={name}"]))
    config = config_flags.config_from_flags(known)
    config.check()
    check_choices(config)
    MODELS.check(config.model)
    data.DATASETS.check(config.dataset)
    partition = data.PARTITIONS.check(config.partition)
    if partition.name == "domain":
        data.PARTITIONS.check(str(partition.params["inner"]).replace(";", ","))
    assert config.final_evals <= config.num_rounds
    comments = [line[2:] for line in text.splitlines() if line.startswith("# ")]
    command = next(line for line in comments if line.startswith("fedwin train "))
    folder = [] if config.dataset == "digits" else ["--data_dir=DIR"]
    assert shlex.split(command)[2:] == [f"--flagfile={name}", *folder] and text.startswith("# ")
    assert any(line.startswith("Expected time: ") for line in comments)
    assert any(line.startswith("Expected: ") and any(c.isdigit() for c in line) for line in comments)
    if name.startswith("wima_"):
        # FedJAX's batches: by name, or because clients hold whole batches, for which both ways take the same steps.
        held = SHARED.get(config.dataset)
        assert config.batching == "repeat" if held is None else held // config.num_clients % config.batch_size == 0
    if name.startswith("ima_"):
        assert [WRAPPERS.check(wrap).params.get("placement", "post") for wrap in config.wrap] == ["post"]
        (remark,) = [line for line in comments if line.startswith("FedAdam ")]
        assert ALGORITHMS.check(config.algorithm).name == "fedavg" and "->" in remark
        assert "--algorithm=fedadam" in text and "placement=pre" in text


def test_the_flags_of_a_cell():
    lines = flag_text(item("wima/table2"), "scaffold", "cifar10_alpha0").splitlines()
    assert "--algorithm=scaffold" in lines and "--partition=dirichlet:alpha=0" in lines and "--seeds=0,1,2" in lines
    one = item("ima/table1")
    forked = config_of(one, cell_of(one, "fedadam", "fmnist_shards", "ima"))
    assert forked.wrap == ["ima:window=5,start=0.75,placement=pre"]
    assert forked.num_rounds == 300 and not forked.fork_from


def test_a_cell_that_is_not_there():
    refused("Did you mean 'scaffold'", flag_text, item("wima/table2"), "scafold", "femnist")
    refused("must be one of silo, device, overhead", flag_text, item("ghb/table2"), "fedavg", "nowhere")
