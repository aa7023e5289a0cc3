"""FedJAX's federated data, in memory and in SQLite files."""

import fedjax
import numpy as np
import pytest

from fedwin import data
from tests.data.files import refused, write_fedjax


def mapping(sizes, features=("x", "y"), seed=0):
    rng = np.random.default_rng(seed)
    result = {}
    for k, n in enumerate(sizes):
        examples = {"x": rng.random((n, 4, 4, 1), np.float32), "y": rng.integers(0, 3, n)}
        examples["domain_id"] = np.full(n, k % 2)
        result[b"c%03d" % k] = {key: examples[key] for key in features}
    return result


def compare(dataset, content):
    part = data.make_partition(dataset, None, None, 0)
    assert part.num_clients == len(content)
    for k, client in enumerate(part.ids):
        np.testing.assert_array_equal(dataset.train["x"][part.client(k)], content[client]["x"])
        np.testing.assert_array_equal(dataset.train["y"][part.client(k)], content[client]["y"])


def test_any_federated_data_is_packed():
    train, test = mapping([3, 5, 1]), mapping([2, 2], seed=1)
    federated = map(fedjax.InMemoryFederatedData, (train, test))
    dataset = data.from_fedjax(*federated, num_classes=3)
    compare(dataset, train)
    assert dataset.train["y"].dtype == np.int32 and len(dataset.test["y"]) == 4
    numbers = fedjax.InMemoryFederatedData({b"a": {"x": np.zeros((2, 3)), "y": np.array([0.5, 2])}})
    assert data.from_fedjax(numbers, numbers, num_classes=1, task="regression").train["y"].tolist() == [0.5, 2]
    assert dataset.test_natural.sizes.tolist() == [2, 2] and dataset.task == "classification"


def test_preprocessors_are_applied_and_domains_kept():
    content = mapping([3, 5], ("x", "y", "domain_id"))
    federated = fedjax.InMemoryFederatedData(content).preprocess_batch(lambda batch: {**batch, "x": batch["x"] * 2})
    dataset = data.from_fedjax(federated, federated)
    np.testing.assert_array_equal(dataset.train["x"][:3], content[b"c000"]["x"] * 2)
    assert dataset.natural.domain.tolist() == [0, 1] and dataset.train["domain"].tolist() == [0] * 3 + [1] * 5


def test_sqlite_files_by_name(tmp_path):
    train, text = mapping([3, 5, 1]), "fedjax:train=train.sqlite,test=test.sqlite,num_classes=3"
    refused("train.sqlite: no such file", data.load, text, tmp_path)
    write_fedjax(tmp_path / "train.sqlite", train)
    write_fedjax(tmp_path / "test.sqlite", mapping([2], seed=1))
    compare(data.load(text, tmp_path), train)


GOOD = mapping([2, 2], ("x", "y", "domain_id"))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c.update(y=c["y"] + (1 << 32)), "train, record 2: label 42949672.. is not in 0..2147483647"),
        (lambda c: c.update(y=c["y"] + 7), r"train, record 2: label \d+ is not in 0..2"),
        (lambda c: c.update(domain_id=c["domain_id"] + (1 << 32)), "domain_id 4294967297 is not in"),
    ],
)
def test_features_that_do_not_fit_are_refused(change, message):
    broken = {client: {key: value.copy() for key, value in held.items()} for client, held in GOOD.items()}
    change(broken[b"c001"])
    train, test = map(fedjax.InMemoryFederatedData, (broken, GOOD))
    refused(message, data.from_fedjax, train, test, num_classes=3)
