"""Shipped flagfiles: each parses, passes all checks and names registered choices."""

import pathlib
import shlex

import pytest
from absl import flags

from experiments import train
from experiments.cli import config_flags
from fedwin import augment, data, losses, observers
from fedwin.algorithms import ALGORITHMS
from fedwin.models import MODELS
from fedwin.runs.choices import algorithm_choice
from fedwin.runs.config import Config
from fedwin.wrappers import WRAPPERS

FOLDER = pathlib.Path(train.__file__).parent / "flags"
FILES = sorted(FOLDER.glob("*.flags"))
SMALL = {
    "digits_scaffold_wima",
    "fmnist_shards_ima",
    "mnist_writers_fedavg",
    "shakespeare_leaf",
    "cifar10_scaffold_wima",
}


def config_of(arguments) -> Config:
    """Parses arguments as `fedwin train` does, in a separate set of flags."""
    known = flags.FlagValues()
    train.define_flags(known)
    known(["train", *arguments])
    return config_flags.config_from_flags(known)


def test_there_are_flagfiles():
    assert SMALL < {path.stem for path in FILES} and len(FILES) > 20


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_flagfile_is_runnable(path):
    config = config_of([f"--flagfile={path}"])
    config.check()
    data.DATASETS.check(config.dataset)
    partition = data.PARTITIONS.check(config.partition)
    if partition.name == "domain":
        data.PARTITIONS.check(str(partition.params["inner"]).replace(";", ","))
    MODELS.check(config.model)
    ALGORITHMS.check(algorithm_choice(config))
    losses.LOSSES.check(config.loss)
    augment.AUGMENTATIONS.check(config.augment)
    for text in config.wrap:
        WRAPPERS.check(text)
    for text in config.observe:
        observers.OBSERVERS.check(text)
    assert config.final_evals <= config.num_rounds


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_comments_say_command_time_and_number(path):
    comments = [line[2:] for line in path.read_text().splitlines() if line.startswith("# ")]
    command = next(line for line in comments if line.startswith("python -m experiments.train "))
    arguments = shlex.split(command)[3:]
    assert arguments[0] == f"--flagfile=experiments/flags/{path.name}"
    assert arguments[1:] == ([] if "dataset=digits" in path.read_text() else ["--data_dir=DIR"])
    assert any(line.startswith("Expected time: ") for line in comments)
    assert any(line.startswith("Expected: ") and any(c.isdigit() for c in line) for line in comments)
    assert not path.read_text().startswith("--")


@pytest.mark.parametrize("path", [path for path in FILES if path.stem.startswith("wima_")], ids=lambda path: path.stem)
def test_wimas_batches_are_fedjaxs(path):
    """Either FedJAX's by name, or clients hold whole batches, for which both ways take the same steps."""
    config = config_of([f"--flagfile={path}"])
    held = {"cifar10": 50_000, "cifar100": 50_000, "cifar100_pam": 50_000}.get(config.dataset)
    if held is None:
        assert config.batching == "repeat"
    else:
        assert held // config.num_clients % config.batch_size == 0


@pytest.mark.parametrize("path", [path for path in FILES if path.stem.startswith("ima_")], ids=lambda path: path.stem)
def test_imas_rows_of_adaptive_servers_average_before_the_server(path):
    text = path.read_text()
    config = config_of([f"--flagfile={path}"])
    adaptive = ALGORITHMS.check(config.algorithm).name in ("fedadam", "fedyogi", "fedadagrad")
    placements = {WRAPPERS.check(wrap).params.get("placement", "post") for wrap in config.wrap}
    assert placements == {"pre" if adaptive else "post"}
    if "FedAdam" in text and not adaptive:
        (remark,) = [line for line in text.splitlines() if line.startswith("# FedAdam ")]
        assert "--algorithm=fedadam" in remark and "placement=pre" in remark and "->" in remark
