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
    "ragged": (arrays([[1, 2], [3]]), "same shape"),
    "unscaled images": (arrays(X.astype(np.int64), test_x=X.astype(np.int64)), "images are int64 | uint8"),
    "name": (arrays(name=3), "name=3 | text"),
    "NaN clients": (arrays(clients=np.full(20, np.nan)), "client id is nan"),
    "mean alone": (arrays(mean=(0.5,)), "mean is given alone"),
    "fedjax None": (lambda: data.from_fedjax(None, None), "NoneType | fedjax.FederatedData"),
    "fedjax without y": (federated({"x": X}), "features | y"),
    "fedjax empty client": (federated({"x": X, "y": Y}, {"x": X[:0], "y": Y[:0]}), "no "),
    "partition over -1 clients": (lambda: data.make_partition(DIGITS, "iid", -1, 0), "num_clients | -1"),
    "load None": (lambda: data.load(None), "dataset=None | text"),
    "split 1.5": (lambda: data.split_validation(data.make_partition(DIGITS, "iid", 20, 0), 1.5, 0), "val_fraction=1.5"),
    "flax None": (lambda: models.from_flax(None, (8, 8, 1)), "None | flax.linen module"),
    "flax class": (lambda: models.from_flax(Network, (8, 8, 1)), "create one first"),
    "flax too strict": (lambda: models.from_flax(Product(), (8, 8, 1)), "Product does not take examples"),
    "flax path": (lambda: models.from_flax(Network(), (8, 8, 1), classifier_path=("x",)), "classifier_path=('x',)"),
    "flax dtype": (lambda: models.from_flax(Network(), (8, 8, 1), dtype="int8"), "dtype=int8"),
    "haiku array": (lambda: models.from_haiku(HAIKU, X), "sample_batch must be a dict"),
    "haiku without key": (lambda: models.from_haiku(hk.without_apply_rng(HAIKU), {"x": X}), "without_apply_rng"),
    "fedjax model None": (lambda: models.from_fedjax(None, {"x": X}), "fedjax.Model"),
    "build None": (lambda: models.build(None, (8, 8, 1), 10), "model=None | text"),
}


@pytest.mark.parametrize("name", CASES)
def test_data_or_model_that_cannot_be(name):
    refused(*CASES[name])
