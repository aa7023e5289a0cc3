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
    "float labels": (arrays(train_y=Y * 1.0), "labels are float64 | whole numbers"),
    "wide labels": (arrays(train_y=Y.astype(np.int64) + 2**32), "label 4294967296"),
    "no feature axis": (arrays(X[:, 0, 0, 0], test_x=X[:, 0, 0, 0]), "no features"),
    "test of another shape": (arrays(test_x=X[:, :4]), "(8, 8, 1) in train"),
    "text": (arrays(np.array(["a"] * 20)[:, None]), "train"),
    "objects": (arrays(np.full((20, 1), None)), "'x' is object"),
    "ragged": (arrays([[1, 2], [3]]), "same shape"),
    "unscaled images": (arrays(X.astype(np.int64), test_x=X.astype(np.int64)), "images are int64 | uint8"),
    "num_classes 0": (arrays(num_classes=0), "num_classes=0"),
    "num_classes huge": (arrays(num_classes=10**12), "num_classes=1000000000000 | integer"),
    "name": (arrays(name=3), "name=3 | text"),
    "NaN clients": (arrays(clients=np.full(20, np.nan)), "client id is nan"),
    "mean of another size": (arrays(mean=(0, 0, 0, 0), std=(1, 1, 1, 1)), "mean= | 1 finite numbers"),
    "mean alone": (arrays(mean=(0.5,)), "mean is given alone"),
    "fedjax None": (lambda: data.from_fedjax(None, None), "NoneType | fedjax.FederatedData"),
    "fedjax without y": (federated({"x": X}), "features | y"),
    "fedjax empty client": (federated({"x": X, "y": Y}, {"x": X[:0], "y": Y[:0]}), "no "),
    "fedjax shapes": (federated({"x": X, "y": Y}, {"x": X[:, :4], "y": Y}), "shape"),
    "partition a name": (lambda: data.make_partition("digits", "iid", 20, 0), "dataset is a str | data.load"),
    "partition over -1 clients": (lambda: data.make_partition(DIGITS, "iid", -1, 0), "num_clients | -1"),
    "partition seed": (lambda: data.make_partition(DIGITS, "iid", 20, -1), "seed=-1"),
    "load None": (lambda: data.load(None), "dataset=None | text"),
    "split 1.5": (lambda: data.split_validation(data.make_partition(DIGITS, "iid", 20, 0), 1.5, 0), "val_fraction=1.5"),
    "flax None": (lambda: models.from_flax(None, (8, 8, 1)), "None | flax.linen module"),
    "flax class": (lambda: models.from_flax(Network, (8, 8, 1)), "create one first"),
    "flax too strict": (lambda: models.from_flax(Product(), (8, 8, 1)), "Product does not take examples"),
    "flax classes": (lambda: models.from_flax(Network(), (8, 8, 1), 12), "10 outputs | 12 classes"),
    "flax shape 8": (lambda: models.from_flax(Network(), 8), "input_shape=8 | (28, 28, 1)"),
    "flax path": (lambda: models.from_flax(Network(), (8, 8, 1), classifier_path=("x",)), "classifier_path=('x',)"),
    "flax dtype": (lambda: models.from_flax(Network(), (8, 8, 1), dtype="int8"), "dtype=int8"),
    "haiku None": (lambda: models.from_haiku(None, {"x": X}), "None | haiku transform | hk.transform"),
    "haiku array": (lambda: models.from_haiku(HAIKU, X), "sample_batch must be a dict"),
    "haiku without x": (lambda: models.from_haiku(HAIKU, {"y": Y}), "'x'"),
    "haiku without key": (lambda: models.from_haiku(hk.without_apply_rng(HAIKU), {"x": X}), "without_apply_rng"),
    "fedjax model None": (lambda: models.from_fedjax(None, {"x": X}), "fedjax.Model"),
    "build None": (lambda: models.build(None, (8, 8, 1), 10), "model=None | text"),
    "build too small": (lambda: models.build("lenet5", (2, 2, 1), 10), "(2, 2, 1)"),
}


@pytest.mark.parametrize("name", CASES)
def test_data_or_model_that_cannot_be(name):
    refused(*CASES[name])
