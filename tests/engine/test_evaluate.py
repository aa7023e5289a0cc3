"""Losses and accuracies against NumPy: padding, masked ids, domains, lazily decoded test sets."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from fedwin import data
from fedwin.core import Variables
from fedwin.data import cache, integrity
from fedwin.data.dataset import Dataset
from fedwin.engine import evaluate
from fedwin.engine.strategy import Strategy, make_mesh
from fedwin.models.model import Model, Output
from tests.data.files import flip, refused, write_cache

RNG = np.random.default_rng(0)


def table_model(logits):
    """A model whose output for the example x = [i, ...] is logits[i]."""
    apply = lambda variables, batch, key, train: Output(variables.params[batch["x"][:, 0]], None, ())
    return Model(lambda key: Variables(jnp.asarray(logits)), apply, None, (), "table", logits.shape[-1])


def measured(dataset, logits, batch_size=4, strategy=Strategy()):
    """Evaluates the table of logits as a run does."""
    probe = evaluate.make_probe(table_model(logits), lambda batch: batch, evaluate.measure_of(dataset), strategy)
    test = evaluate.batches(evaluate.held_out(dataset), batch_size, strategy.num_devices)
    return {k: float(v) for k, v in jax.jit(probe)({"model": Variables(jnp.asarray(logits))}, test)["model"].items()}


def numbered(y, **features):
    """Test features whose x is the row number."""
    return {"x": np.arange(len(y), dtype=np.int32)[:, None], "y": np.asarray(y, np.int32), **features}


def text_dataset(labels, accuracies, vocabulary):
    test = numbered(labels)
    return Dataset("text", test, test, vocabulary, task="sequence", accuracies=accuracies)


def reference(logits, labels, ignored, forbidden):
    """Accuracy over tokens, position by position."""
    right = counted = 0
    for row, targets in zip(logits, labels):
        for scores, target in zip(row, targets):
            if target in ignored:
                continue
            allowed = [k for k in range(len(scores)) if k not in forbidden]
            right += allowed[int(np.argmax(scores[allowed]))] == target
            counted += 1
    return right / counted


@pytest.mark.parametrize(
    "name", ["shakespeare_synthetic:clients=3,rows=12", "stackoverflow_synthetic:users=3,n=30,vocabulary_size=40"]
)
def test_text_accuracies_leave_out_and_forbid_what_the_data_set_says(name):
    known = data.load(name)
    labels = known.test["y"][:9].copy()
    vocabulary = known.num_classes
    labels[0, :8] = [0, 1, 2, *((87, 88) if vocabulary == 90 else (5, 6)), vocabulary - 1, 3, 3]
    # Half of the time the right id is on top, otherwise any; special ids often win where they are not removed.
    logits = RNG.standard_normal((*labels.shape, vocabulary)).astype(np.float32)
    logits[..., [0, 1, 2, vocabulary - 1]] += 1
    np.put_along_axis(logits, labels[..., None], np.take_along_axis(logits, labels[..., None], -1) + 4, -1)
    found = measured(text_dataset(labels, known.accuracies, vocabulary), logits)
    for metric, (ignored, forbidden) in known.accuracies.items():
        assert found[metric] == pytest.approx(reference(logits, labels, ignored, forbidden), abs=1e-6)
    token_losses = -np.take_along_axis(log_softmax(logits, -1), labels[..., None], -1)[..., 0] * (labels > 0)
    assert found["loss"] == pytest.approx((token_losses.sum(1) / labels.shape[1]).mean(), rel=1e-5)
    if vocabulary == 90:
        # FedJAX's ids are off by the place of BOS, EOS and OOV: 2 counts, and 88 does not.
        assert set(found) == {"loss", "accuracy", "accuracy_fedjax"} and found["accuracy"] != found["accuracy_fedjax"]
        assert known.accuracies["accuracy_fedjax"] == ((0, 88), (0, 87, 88, 89))


def test_a_model_of_the_last_position_is_measured_on_it():
    labels = np.array([[3, 4, 5], [3, 4, 0], [1, 1, 2]])
    logits = np.eye(6, dtype=np.float32)[[5, 5, 5]] * 3
    found = measured(text_dataset(labels, {"accuracy": ((0,), ())}, 6), logits)
    assert found["accuracy"] == pytest.approx(1 / 3)  # of the targets 5, 3 (4 is that row's end) and 2
    assert found["loss"] == pytest.approx(-log_softmax(logits, -1)[[0, 1, 2], [5, 3, 2]].mean(), rel=1e-5)


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_accuracy_over_domains_is_their_unweighted_mean(devices):
    y = RNG.integers(0, 3, 23)
    domain = np.array([0] * 15 + [1] * 6 + [2] * 2, np.int32)  # and no example of the fourth
    logits = RNG.standard_normal((23, 3)).astype(np.float32)
    right = logits.argmax(1) == y
    test = numbered(y, domain=domain)
    dataset = Dataset("domains", test, test, 3, domain_names=("a", "b", "c", "d"))
    found = measured(dataset, logits, strategy=Strategy(1, make_mesh(2) if devices == 2 else None))
    each = [right[domain == d].mean() for d in range(3)]
    assert [found[f"accuracy_{name}"] for name in "abc"] == pytest.approx(each)
    assert found["accuracy"] == pytest.approx(np.mean(each)) and np.isnan(found["accuracy_d"])
    plain = dataclasses.replace(dataset, domain_names=())
    assert measured(plain, logits)["accuracy"] == pytest.approx(right.mean())
    # Domains of clients (FEMNIST's writers) are not domains of test examples.
    clients = dataclasses.replace(dataset, test=numbered(y))
    assert set(measured(clients, logits)) == {"loss", "accuracy"}


@pytest.mark.parametrize("devices", [1, 2])
def test_r2_and_rmse_are_exact_over_batches(devices):
    y = RNG.normal(1e4, 1, 23).astype(np.float32)  # far from 0: float32 has 3 digits of the squares' differences
    outputs = (y + RNG.normal(0, 0.5, 23)).astype(np.float32)[:, None]
    test = numbered(np.zeros(23)) | {"y": y}
    dataset = Dataset("numbers", test | {"y": y + 1}, test, 1, task="regression")  # training labels have another mean
    found = measured(dataset, outputs, strategy=Strategy(1, make_mesh(2) if devices == 2 else None))
    squares = (outputs[:, 0].astype(np.float64) - y) ** 2
    assert found["rmse"] == pytest.approx(squares.mean() ** 0.5, rel=1e-5)
    assert found["r2"] == pytest.approx(1 - squares.mean() / y.astype(np.float64).var(), abs=1e-4)


@pytest.mark.parametrize("total, blocks", [(100, 2), (90, 2), (500, 10), (62, 2), (53, 1), (7, 1)])
def test_logits_of_blocks_are_those_of_the_batch(total, blocks):
    seen = []

    def logits(batch):
        seen.append(len(batch["x"]))
        return batch["x"] * 2 + batch["mask"][:, None]

    batch = {"x": jnp.arange(2.0 * total).reshape(total, 2), "mask": jnp.ones(total)}
    np.testing.assert_array_equal(evaluate.in_blocks(logits)(batch), logits(batch))
    assert seen[0] == total // blocks


def test_padding_never_counts():
    y = RNG.integers(0, 4, 7)
    logits = RNG.standard_normal((7, 4)).astype(np.float32)
    test = numbered(y)
    found = [measured(Dataset("d", test, test, 4), logits, size) for size in (1, 3, 7, 100)]
    for values in found:
        assert values["accuracy"] == pytest.approx((logits.argmax(1) == y).mean())
        assert values["loss"] == pytest.approx(-log_softmax(logits, -1)[np.arange(7), y].mean(), rel=1e-5)


class Counted(data.Images):
    """Images that count how often each is decoded."""

    def __init__(self, count, size=4):
        super().__init__(range(count), size)
        self.asked = []

    def image(self, item):
        self.asked.append(item)
        return np.full((self.size_px, self.size_px, 3), item % 256, np.uint8)


def test_images_of_a_test_set_are_decoded_once_and_only_those_that_are_used():
    images = Counted(30)
    test = {"x": images, "y": np.arange(30, dtype=np.int32)}
    dataset = Dataset("lazy", test, test, 30)
    whole = evaluate.held_out(dataset)
    np.testing.assert_array_equal(whole["x"][:, 0, 0, 0], whole["y"])
    assert sorted(images.asked) == list(range(30))
    images.asked.clear()
    some, again = evaluate.held_out(dataset, 5), evaluate.held_out(dataset, 5)
    assert len(images.asked) == 10 and len(some["y"]) == 5
    np.testing.assert_array_equal(some["x"][:, 0, 0, 0], some["y"])
    np.testing.assert_array_equal(some["y"], again["y"])  # one fixed draw
    packed = evaluate.batches(some, 2)
    assert packed["x"].shape == (3, 2, 4, 4, 3) and packed["mask"].sum() == 5


def test_of_a_test_set_beyond_the_memory_a_sample_is_decoded(monkeypatch):
    images = Counted(1000)
    test = {"x": images, "y": np.zeros(1000, np.int32)}
    dataset = Dataset("large", test, test, 30)
    monkeypatch.setattr(evaluate, "TEST_BYTES", 10_000)
    refused(r"large: 1,000 test examples .* --eval_examples=96\.$", evaluate.held_out, dataset, 1000)
    assert not images.asked
    with pytest.warns(UserWarning, match=r"large: 1,000 test examples .* fixed sample of 96 \(--eval_examples=96\)\.$"):
        found = evaluate.held_out(dataset)
    assert len(images.asked) == 96
    np.testing.assert_array_equal(found["x"], evaluate.held_out(dataset, 96)["x"])


def test_a_test_set_that_is_read_whole_is_compared_with_its_checksums(tmp_path, monkeypatch):
    monkeypatch.setattr(integrity, "SMALL_BYTES", 0)
    folder = write_cache(data.load("digits"), "digits", tmp_path)
    flip(folder / "test.x.npy")
    dataset = cache.read(folder)
    refused("test.x.npy: damaged.*--force", evaluate.held_out, dataset)
    assert len(evaluate.held_out(dataset, 5)["y"]) == 5  # a sample of a file costs no reading of all of it
