"""Config: every invalid field is one line that names it, before anything is read, compiled or written."""

import dataclasses
import typing

import jax
import numpy as np
import pytest

import fedwin
from fedwin.algorithms import ALGORITHMS
from fedwin.data import PARTITIONS
from fedwin.data.dataset import Partition
from fedwin.registry.ranges import Range
from fedwin.runs import directory as directories
from fedwin.runs.config import INTEGER_LISTS, Config, default_of
from fedwin.runs.prepare import prepare
from tests.refusals import refused
from tests.small_runs import placed

BASE = Config(dataset="digits", num_clients=20, model="digits_mlp", partition="shards:per_client=2")


def wrong_values(field: dataclasses.Field) -> list:
    """Returns values just outside of a field's range, and of other types."""
    default = default_of(field)
    wrong = [object(), None, [None], [1.5] if field.name in INTEGER_LISTS else [1]]
    if isinstance(default, list):
        wrong.append("ema")
    if isinstance(default, bool):
        wrong += ["true", 1]
    for limits in typing.get_args(field.type):
        if isinstance(limits, Range):
            wrong += [limits.least - 1, *[limits.most] * limits.open_most]
        elif isinstance(limits, str):  # of a Literal
            wrong.append("nosuch")
    if isinstance(default, (int, float)) and not isinstance(default, bool):
        wrong += ["1", True, 1e-46, 1e39, 10**400, float("nan"), float("inf")]
    return wrong


@pytest.mark.parametrize("field", dataclasses.fields(Config), ids=lambda field: field.name)
def test_a_value_outside_of_a_field_is_one_line(field):
    for value in wrong_values(field):
        refused(field.name, dataclasses.replace(BASE, **{field.name: value}).check)


def test_steps_and_epochs_exclude_each_other():
    refused("both set the steps; keep one", dataclasses.replace(BASE, local_steps=5, local_epochs=2).check)


def test_equal_values_have_one_type():
    """Text of flags, integers, floats, numpy's numbers and tuples give the same config, hash and JSON."""
    watching = ["ema"]
    made = Config(observe=watching, wrap=("swa",), seeds=("0", np.int64(1)), num_rounds=np.int32(3), shuffle=np.False_)
    watching.append("swa")
    assert made == Config(observe=["ema"], wrap=["swa"], seeds=[0, 1], num_rounds=3, shuffle=False)
    assert type(made.num_rounds) is type(made.seeds[1]) is int
    assert type(dataclasses.replace(BASE, client_lr=1).client_lr) is float
    for value in (1, 1.0, 2, 2.0):
        made = dataclasses.replace(BASE, local_epochs=value)
        assert type(made.local_epochs) is int
        made.check()
    default = directories.set_fields(dataclasses.replace(Config(), local_epochs=1.0).decisive())
    assert not {"local_epochs", "local_steps", "local_work"} & default.keys()
    assert dataclasses.replace(BASE, local_epochs=0.5).local_epochs == 0.5


def test_a_method_that_draws_from_the_setting_is_refused(tmp_path):
    """All seeds share one program: they would get the noise of the first one."""
    ALGORITHMS.register("noisy", lambda setting, solve: jax.random.normal(setting.key))
    config = placed(BASE, tmp_path / "run", algorithm="noisy")
    refused(r"setting\.key.*init\(params, key\)", fedwin.run, config, quiet=True)
    assert not (tmp_path / "run").exists()


def test_seeds_whose_partitions_differ_in_clients_are_refused_in_one_line():
    @PARTITIONS.register("by_seed")
    def by_seed(dataset, num_clients, seed):
        return Partition.from_lists(np.arange(60).reshape(6 + 4 * seed, -1))

    config = dataclasses.replace(BASE, seeds=[0, 1], partition="by_seed", num_clients=0)
    refused("6 with seed 0, 10 with seed 1.*--partition_seed", prepare, config)
    assert prepare(dataclasses.replace(config, partition_seed=1)).setting.num_clients == 10
