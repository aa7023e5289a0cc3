"""Invalid arrays, FedJAX data, modules and transformations from Python."""

import fedjax
import flax.linen as nn
import haiku as hk
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import data, models
from tests.misuse.test_python_config import HAIKU, Network, X, Y, refused

NAN = X.copy()
NAN[3] = np.nan
DIGITS = data.load("digits")


def arrays(train_x=X, train_y=Y, test_x=X, test_y=Y, **options):
    return lambda: data.from_arrays(train_x, train_y, test_x, test_y, **options)


def federated(*clients):
    """Returns a call of from_fedjax on clients of these features."""
    held = fedjax.InMemoryFederatedData({b"%d" % k: features for k, features in enumerate(clients)})
    return lambda: data.from_fedjax(held, held)


class Product(nn.Module):
    """A module that takes no examples."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(x) @ jnp.zeros((3, 3))


CASES = {
    "labels too few": (arrays(train_y=Y[:5]), "train | differ in length"),
    "no training example": (arrays(X[:0], Y[:0]), "no training example"),
    "no test example": (arrays(test_x=X[:0], test_y=Y[:0]), "test | no example"),
    "NaN": (arrays(NAN), "train, record 3 | NaN"),
    "NaN in test": (arrays(test_x=NAN), "test, record 3 | NaN"),
    "float labels": (arrays(train_y=Y * 1.0), "labels are float64 | whole numbers"),
    "negative labels": (arrays(train_y=Y - 1), "label -1"),
    "wide labels": (arrays(train_y=Y.astype(np.int64) + 2**32), "label 4294967296"),
    "test labels": (arrays(test_y=Y + 5), "test | label 10 is not in 0..9"),
    "no feature axis": (arrays(X[:, 0, 0, 0], test_x=X[:, 0, 0, 0]), "no features"),
    "test of another shape": (arrays(test_x=X[:, :4]), "(8, 8, 1) in train"),
    "text": (arrays(np.array(["a"] * 20)[:, None]), "train"),
    "objects": (arrays(np.full((20, 1), None)), "'x' is object"),
    "complex": (arrays(X * 1j, test_x=X * 1j), "'x' is complex"),
    "None": (arrays(None, None, None, None), "labels are object"),
    "ragged": (arrays([[1, 2], [3]]), "same shape"),
    "numbers": (arrays(1, 2, 3, 4), "no training example"),
    "unscaled images": (arrays(X.astype(np.int64), test_x=X.astype(np.int64)), "images are int64 | uint8"),
    "num_classes 0": (arrays(num_classes=0), "num_classes=0"),
    "num_classes 5": (arrays(num_classes=5), "label 5 is not in 0..4"),
    "num_classes text": (arrays(num_classes="10"), "num_classes='10' | integer"),
    "num_classes huge": (arrays(num_classes=10**12), "num_classes=1000000000000 | integer"),
    "name": (arrays(name=3), "name=3 | text"),
    "clients too few": (arrays(clients=[1, 2]), "20 training examples | one for each"),
    "NaN clients": (arrays(clients=np.full(20, np.nan)), "client id is nan"),
    "clients None": (arrays(clients=[None] * 20), "client ids are object"),
    "mean of another size": (arrays(mean=(0, 0, 0, 0), std=(1, 1, 1, 1)), "mean= | 1 finite numbers"),
    "mean text": (arrays(mean="a", std="b"), "mean='a' | finite numbers"),
    "mean NaN": (arrays(mean=(np.nan,), std=(1.0,)), "mean= | finite numbers"),
    "mean alone": (arrays(mean=(0.5,)), "mean is given alone"),
    "std 0": (arrays(mean=(0.0,), std=(0.0,)), "std= | positive numbers"),
    "fedjax None": (lambda: data.from_fedjax(None, None), "NoneType | fedjax.FederatedData"),
    "fedjax dict": (lambda: data.from_fedjax({}, {}), "dict | fedjax.FederatedData"),
    "fedjax without y": (federated({"x": X}), "features | y"),
    "fedjax NaN": (federated({"x": NAN, "y": Y}), "record 3 | NaN"),
    "fedjax labels": (federated({"x": X, "y": Y - 1}), "label -1"),
    "fedjax float labels": (federated({"x": X, "y": Y * 1.0}), "labels are float64"),
    "fedjax empty client": (federated({"x": X, "y": Y}, {"x": X[:0], "y": Y[:0]}), "no "),
    "fedjax shapes": (federated({"x": X, "y": Y}, {"x": X[:, :4], "y": Y}), "shape"),
    "partition a name": (lambda: data.make_partition("digits", "iid", 20, 0), "dataset is a str | data.load"),
    "partition over -1 clients": (lambda: data.make_partition(DIGITS, "iid", -1, 0), "num_clients | -1"),
    "partition over text": (lambda: data.make_partition(DIGITS, "iid", "20", 0), "num_clients='20' | integer"),
    "partition seed": (lambda: data.make_partition(DIGITS, "iid", 20, -1), "seed=-1"),
    "partition without seed": (lambda: data.make_partition(DIGITS, "iid", 20, None), "seed=None"),
    "load None": (lambda: data.load(None), "dataset=None | text"),
    "split 1.5": (lambda: data.split_validation(data.make_partition(DIGITS, "iid", 20, 0), 1.5, 0), "val_fraction=1.5"),
    "split text": (lambda: data.split_validation(data.make_partition(DIGITS, "iid", 20, 0), "a", 0), "val_fraction=a"),
    "flax None": (lambda: models.from_flax(None, (8, 8, 1)), "None | flax.linen module"),
    "flax class": (lambda: models.from_flax(Network, (8, 8, 1)), "create one first"),
    "flax too strict": (lambda: models.from_flax(Product(), (8, 8, 1)), "Product does not take examples"),
    "flax classes": (lambda: models.from_flax(Network(), (8, 8, 1), 12), "10 outputs | 12 classes"),
    "flax shape 8": (lambda: models.from_flax(Network(), 8), "input_shape=8 | (28, 28, 1)"),
    "flax shape text": (lambda: models.from_flax(Network(), "abc"), "input_shape='abc'"),
    "flax shape negative": (lambda: models.from_flax(Network(), (-1, 8)), "input_shape=(-1, 8)"),
    "flax path": (lambda: models.from_flax(Network(), (8, 8, 1), classifier_path=("x",)), "classifier_path=('x',)"),
    "flax dtype": (lambda: models.from_flax(Network(), (8, 8, 1), dtype="int8"), "dtype=int8"),
    "haiku None": (lambda: models.from_haiku(None, {"x": X}), "None | haiku transform | hk.transform"),
    "haiku function": (lambda: models.from_haiku(lambda batch: batch, {"x": X}), "haiku transform"),
    "haiku array": (lambda: models.from_haiku(HAIKU, X), "sample_batch must be a dict"),
    "haiku without x": (lambda: models.from_haiku(HAIKU, {"y": Y}), "'x'"),
    "haiku classes": (lambda: models.from_haiku(HAIKU, {"x": X}, 5), "10 outputs | 5 classes"),
    "haiku without key": (lambda: models.from_haiku(hk.without_apply_rng(HAIKU), {"x": X}), "without_apply_rng"),
    "fedjax model None": (lambda: models.from_fedjax(None, {"x": X}), "fedjax.Model"),
    "build None": (lambda: models.build(None, (8, 8, 1), 10), "model=None | text"),
    "build shape None": (lambda: models.build("cnn", None, 10), "input_shape=None"),
    "build classes text": (lambda: models.build("cnn", (8, 8, 1), "10"), "num_classes=10 | integer"),
    "build too small": (lambda: models.build("lenet5", (2, 2, 1), 10), "(2, 2, 1)"),
}


@pytest.mark.parametrize("name", CASES)
def test_data_or_model_that_cannot_be(name):
    refused(*CASES[name])
