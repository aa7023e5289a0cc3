"""Invalid flags: one line on stderr that names the culprit, exit status 2, nothing compiled or written."""

import dataclasses

import pytest

import fedwin
from fedwin.errors import UserError
from fedwin.runs.config import Config

BASE = Config(dataset="digits", num_clients=20, model="digits_mlp", partition="shards:per_client=2")


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(dataset="digit"), ["unknown dataset 'digit'", "'digits'"]),
        (dict(algorithm="fedprx:mu=1"), ["unknown algorithm 'fedprx'", "'fedprox'"]),
        (dict(algorithm="fedprox:nu=1"), ["no parameter 'nu'", "'mu'"]),
        (dict(algorithm="fedprox:mu=-1"), ["mu=-1"]),
        (dict(model="cnnn"), ["unknown model 'cnnn'"]),
        (dict(partition="dirichlt:alpha=1"), ["unknown partition", "'dirichlet'"]),
        (dict(partition="dirichlet:alpha=-1"), ["alpha=-1"]),
        (dict(wrap=["imma"]), ["unknown wrapper 'imma'", "'ima'"]),
        (dict(wrap=["ima:window=0"]), ["window=0"]),
        (dict(observe=["wima:window=0"]), ["window=0", "at least 1"]),
        (dict(observe=["wima"]), ["needs window"]),
        (dict(observe=["wima:window=3", "wima:window=3"]), ["twice"]),
        (dict(observe=["ema:decay=2"]), ["decay=2"]),
        (dict(observe=["swa:start=1.5"]), ["start=1.5"]),
        (dict(loss="wms"), ["unknown loss 'wms'", "'wsm'"]),
        (dict(augment="crop"), ["unknown augmentation 'crop'"]),
        (dict(clients_per_round=21), ["clients_per_round=21", "20"]),
        (dict(clients_per_round=0), ["clients_per_round=0"]),
        (dict(num_clients=5000), ["5000"]),
        (dict(num_rounds=0), ["num_rounds=0"]),
        (dict(batch_size=0), ["batch_size=0"]),
        (dict(batching="epochs"), ["batching=epochs", "'epoch'"]),
        (dict(precision="float16"), ["precision=float16"]),
        (dict(seeds=["0", "x"]), ["seeds: 'x'"]),
        (dict(seeds=["0", "0"]), ["duplicate seed 0"]),
        (dict(client_momentum=1.5), ["client_momentum=1.5"]),
        (dict(val_fraction=1.0), ["val_fraction=1.0"]),
        (dict(client_optimizer="sdg"), ["client_optimizer=sdg", "'sgd'"]),
        (dict(algorithm="fedavg:server_lr=0.5", server_lr=0.3), ["twice"]),
        (dict(dataset="cifar10", data_dir="/nonexistent"), ["/nonexistent", "--data_dir"]),
    ],
)
def test_a_bad_flag_is_one_clear_line(changes, words, monkeypatch, tmp_path):
    from fedwin import engine

    def begun(*args, **kwargs):
        raise AssertionError("the run was started before the flags were checked")

    monkeypatch.setattr(engine, "Dispatch", begun)
    monkeypatch.setattr(engine, "init", begun)
    directory = tmp_path / "run"
    with pytest.raises(UserError) as caught:
        fedwin.run(dataclasses.replace(BASE, out_dir=str(directory), **changes), quiet=True)
    assert not directory.exists()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_an_unwritable_directory(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match="can't be written"):
        fedwin.run(dataclasses.replace(BASE, out_dir=str(blocked / "run")), quiet=True)


def test_a_client_without_examples_and_labels_outside_the_classes():
    import numpy as np

    from fedwin.data.dataset import Partition
    from fedwin.data.federation import federate
    from fedwin.testing import federations

    data = federations.dataset()
    with pytest.raises(UserError, match="client 1 has no examples"):
        federate(data, Partition(np.arange(10, dtype=np.int32), np.array([0, 5, 5, 10])))
    bad = dataclasses.replace(data, train=data.train | {"y": data.train["y"] + 3})
    with pytest.raises(UserError, match="record [0-9]+: label 4 is not in 0..3"):
        federate(bad, federations.partition())
