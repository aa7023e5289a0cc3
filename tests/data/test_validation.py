"""Validation examples of clients, and access to a partition by client."""

import math
import pickle

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedwin import data
from tests.data.files import balanced, refused


@given(fraction=st.floats(0, 0.99), clients=st.integers(1, 10), seed=st.integers(0, 9))
def test_validation_split_keeps_every_example_once(fraction, clients, seed):
    part = data.make_partition(balanced(10, 100), "iid", clients, 0)
    train, val = data.split_validation(part, fraction, seed)
    for k in range(clients):
        both = np.concatenate([train.client(k), val.client(k)])
        assert sorted(both) == sorted(part.client(k))
        assert len(val.client(k)) == math.floor(fraction * part.sizes[k] + 1e-9)


def test_validation_split_sizes_of_the_thesis():
    part = data.make_partition(balanced(10, 50_000), "iid", 100, 0)
    (train, val), (_, other) = (data.split_validation(part, 0.1, seed) for seed in (0, 1))
    assert (train.sizes == 450).all() and (val.sizes == 50).all() and other.order.tobytes() != val.order.tobytes()
    one = data.make_partition(balanced(10, 100), "iid", 1, 0)
    for fraction, held in ((0.29, 29), (np.float32(0.25), 25)):
        assert data.split_validation(one, fraction, 0)[1].sizes.tolist() == [held]
    for fraction in (-0.1, 1.0):
        refused(f"val_fraction={fraction}", data.split_validation, one, fraction, 0)


def test_a_partition_is_not_indexed_by_client():
    part = data.Partition.from_lists([[1, 0], [2]], report={}, ids=np.array(["a", "b"]))
    for index in (0, -1, slice(1)):
        refused(r"partition.client\(k\)", part.__getitem__, index, error=TypeError)
    for client in (-1, 2):
        refused(f"client {client} is not in 0..1", part.client, client, error=IndexError)
    order, offset, *_ = part
    assert order is part.order and offset is part.offset and len(part) == 5
    for copy in (pickle.loads(pickle.dumps(part)), part._replace(report={}), jax.tree.map(lambda leaf: leaf, part)):
        assert copy.client(1).tolist() == [2]
