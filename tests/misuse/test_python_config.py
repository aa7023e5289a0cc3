"""`fedwin.run` with Config fields and objects of wrong types."""

import dataclasses
import types

import fedjax
import flax.linen as nn
import haiku as hk
import numpy as np
import pytest

import fedwin
from fedwin import models
from fedwin.errors import UserError
from fedwin.runs.config import Config, default_of
from tests.misuse import calls

BASE = dict(dataset="digits", model="digits_mlp", num_clients=20, clients_per_round=2, num_rounds=3, out_dir="run")
WRONG: dict[type, list] = {
    str: [3, None],
    int: ["3", 1.5, True, 2**40],
    float: ["0.1", True, float("nan")],
    bool: ["true", 1],
    list: ["ema", None, [None]],
}
FIELDS = [(field.name, value) for field in dataclasses.fields(Config) for value in WRONG[type(default_of(field))]]


class Network(nn.Module):
    """A flax module of so many outputs."""

    outputs: int = 10

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.outputs)(x.reshape(len(x), -1))


HAIKU = hk.transform(lambda batch: hk.Linear(10)(hk.Flatten()(batch["x"])))
X, Y = np.zeros((20, 8, 8, 1), np.float32), np.arange(20, dtype=np.int32) % 10
# Argument of run, what it says.
OBJECTS = [
    (dict(model=Network()), "model | Network | models.from_flax"),
    (dict(model=Network), "model | class Network | models.from_flax"),
    (dict(model=HAIKU), "model | Transformed | models.from_haiku"),
    (dict(model=fedjax.models.emnist.create_dense_model(only_digits=True)), "model | models.from_fedjax"),
    (dict(model="cnn"), "model is a str | Config(model=...)"),
    (dict(model=lambda x: x), "model is a function | Config(model=...)"),
    (dict(dataset={"x": X, "y": Y}), "dataset is a dict | data.from_arrays"),
    (dict(dataset=(X, Y)), "dataset is a tuple | data.from_arrays"),
    (dict(dataset=X), "dataset is a ndarray | data.from_arrays"),
    (dict(dataset="digits"), "dataset is a str | Config(dataset=...)"),
    (dict(dataset=fedjax.InMemoryFederatedData({b"a": {"x": X, "y": Y}})), "dataset | data.from_fedjax"),
    (dict(model=models.from_flax(Network(5), (8, 8, 1))), "'Network' | 5 outputs | 10 classes"),
    (dict(model=models.from_flax(Network(), (9, 9, 1))), "'Network' | (8, 8, 1)"),
]


@pytest.fixture(autouse=True)
def nothing_is_run(monkeypatch, tmp_path):
    calls.no_run_begins(monkeypatch)
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())


def refused(call, said: str) -> None:
    """Checks that a call raises a UserError of one line that contains all parts of `said`."""
    with pytest.raises(UserError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line and len(line) < 1000
    for part in said.split(" | "):
        assert part in line, f"{part!r} not in {line!r}"


@pytest.mark.parametrize("name, value", FIELDS, ids=str)
def test_a_field_of_a_wrong_type_is_named(name, value):
    refused(lambda: fedwin.check(Config(**(BASE | {name: value}))), name)


@pytest.mark.parametrize("arguments, said", OBJECTS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_object_of_another_kind_says_what_to_call(arguments, said):
    refused(lambda: fedwin.run(Config(**BASE), quiet=True, **arguments), said)


@pytest.mark.parametrize("config", [{"algorithm": "fedavg"}, "fedavg", None, types.SimpleNamespace(imports=[])])
def test_what_is_no_config(config):
    refused(lambda: fedwin.run(config), "config is a | fedwin.Config(")


@pytest.mark.parametrize("seeds", [(0, "x"), [0.5], "0,1", [2**70], [0, 0], ["0", 0], [True], []], ids=str)
def test_seeds_that_are_none(seeds):
    refused(lambda: fedwin.check(Config(**(BASE | {"seeds": seeds}))), "seed")


@pytest.mark.parametrize("seeds", [[0, 1], (0, 1), ["0", "1"], ["0", 1]], ids=str)
def test_seeds_may_be_integers_or_text(seeds):
    config = Config(**(BASE | {"seeds": seeds}))
    assert config.seeds == [0, 1]
    fedwin.check(config)
