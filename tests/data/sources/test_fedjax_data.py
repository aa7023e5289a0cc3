"""FedJAX's federated data, in memory and in SQLite files."""

import fedjax
import numpy as np
import pytest

from fedwin import data
from fedwin.errors import UserError
from tests.data.files import write_fedjax


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


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_any_federated_data_is_packed(tmp_path, kind):
    train, test = mapping([3, 5, 1]), mapping([2, 2], seed=1)
    if kind == "memory":
        federated = [fedjax.InMemoryFederatedData(content) for content in (train, test)]
    else:
        federated = []
        for name, content in (("train", train), ("test", test)):
            write_fedjax(tmp_path / name, content)
            federated.append(fedjax.SQLiteFederatedData.new(str(tmp_path / name)))
    dataset = data.from_fedjax(*federated, num_classes=3)
    compare(dataset, train)
    assert dataset.train["y"].dtype == np.int32 and len(dataset.test["y"]) == 4
    assert dataset.test_natural.sizes.tolist() == [2, 2] and dataset.task == "classification"


def test_preprocessors_are_applied_and_domains_kept():
    content = mapping([3, 5], ("x", "y", "domain_id"))
    federated = fedjax.InMemoryFederatedData(content).preprocess_batch(lambda batch: {**batch, "x": batch["x"] * 2})
    dataset = data.from_fedjax(federated, federated)
    np.testing.assert_array_equal(dataset.train["x"][:3], content[b"c000"]["x"] * 2)
    assert dataset.natural.domain.tolist() == [0, 1] and dataset.train["domain"].tolist() == [0] * 3 + [1] * 5


def test_sequences_are_recognized():
    tokens = {b"a": {"x": np.ones((2, 5), np.int32), "y": np.ones((2, 5), np.int32)}}
    federated = fedjax.InMemoryFederatedData(tokens)
    assert data.from_fedjax(federated, federated).task == "sequence"


def test_sqlite_files_by_name(tmp_path):
    train, text = mapping([3, 5, 1]), "fedjax:train=train.sqlite,test=test.sqlite,num_classes=3"
    with pytest.raises(UserError, match="train.sqlite: no such file"):
        data.load(text, tmp_path)
    write_fedjax(tmp_path / "train.sqlite", train)
    write_fedjax(tmp_path / "test.sqlite", mapping([2], seed=1))
    compare(data.load(text, tmp_path), train)


def test_bad_federations_are_refused(tmp_path):
    good = fedjax.InMemoryFederatedData(mapping([2, 2]))
    with pytest.raises(UserError, match="train, client 'c001': it has no examples"):
        data.from_fedjax(fedjax.InMemoryFederatedData(mapping([2, 0])), good)
    broken = mapping([2, 2])
    broken[b"c001"]["x"][1] = np.nan
    with pytest.raises(UserError, match="train, record 3: 'x' has NaN"):
        data.from_fedjax(fedjax.InMemoryFederatedData(broken), good)
    with pytest.raises(UserError, match="label 2 is not in 0..1|label 2"):
        data.from_fedjax(fedjax.InMemoryFederatedData(mapping([30])), good, num_classes=2)
    with pytest.raises(UserError, match="so that x and y are"):
        data.from_fedjax(fedjax.InMemoryFederatedData(mapping([2], ("x", "domain_id"))), good)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c.update(y=c["y"] + (1 << 32)), "train, record 2: label 42949672.. is not in 0..2147483647"),
        (lambda c: c.update(y=c["y"] / 2), "labels are float64|whole numbers|not a whole number"),
        (lambda c: c.update(domain_id=c["domain_id"] + (1 << 32)), "domain_id 4294967297 is not in"),
        (lambda c: c["x"].__setitem__((1, 0), np.inf), "train, record 3: 'x' has NaN or infinite values"),
    ],
)
def test_features_that_do_not_fit_are_refused(change, message):
    broken = mapping([2, 2], ("x", "y", "domain_id"))
    good = fedjax.InMemoryFederatedData(mapping([2, 2], ("x", "y", "domain_id")))
    change(broken[b"c001"])
    with pytest.raises(UserError, match=message) as error:
        data.from_fedjax(fedjax.InMemoryFederatedData(broken), good)
    assert "\n" not in str(error.value)


def test_inputs_without_features_and_scores_that_are_nan_are_refused():
    flat = {b"a": {"x": np.zeros(2, np.float32), "y": np.zeros(2, int)}}
    with pytest.raises(UserError, match="'x' has shape .2,., which holds no features"):
        data.from_fedjax(*[fedjax.InMemoryFederatedData(flat)] * 2)
    scored = {b"a": {"x": np.zeros((2, 3)), "y": np.zeros(2, int), "score": np.array([0.5, np.nan])}}
    with pytest.raises(UserError, match="record 1: 'score' has NaN"):
        data.from_fedjax(*[fedjax.InMemoryFederatedData(scored)] * 2)
