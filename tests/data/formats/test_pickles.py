"""Pickles: arrays and plain containers are read, nothing is executed."""

import pickle

import numpy as np
import pytest

from fedwin.data.formats import pickles
from tests.data.files import refused


class Called:
    """Pickles as the call of a function."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("function, name", [(eval, "eval"), (open, "open"), (pickle.loads, "loads")])
def test_functions_are_neither_called_nor_named(function, name, protocol):
    for value in (Called(function, ("1",)), function):
        named = f"file: not a pickle of arrays .it names .*{name}"
        refused(named, pickles.loads, pickle.dumps([value], protocol), "file")


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_and_containers_are_read(protocol):
    values = {
        "many": [np.arange(6, dtype=f">{kind}").reshape(2, 3) for kind in ("i2", "u4", "i8", "f2", "f4", "f8")],
        "order": (np.asfortranarray(np.arange(6).reshape(2, 3)), np.zeros((0, 3), np.uint8)),
        "scalars": [np.float32(1.5), np.int64(-2), True, None, 3, 2.5, b"bytes", "text"],
    }
    loaded = pickles.loads(pickle.dumps(values, protocol), "file")
    for own, read in zip((*values["many"], *values["order"]), (*loaded["many"], *loaded["order"]), strict=True):
        np.testing.assert_array_equal(read, own)
        assert type(read) is np.ndarray and read.dtype.newbyteorder("=") == own.dtype.newbyteorder("=")
    assert loaded["scalars"] == values["scalars"] and type(loaded["scalars"][0]) is np.float32


def test_damaged_pickles_are_one_line():
    for blob in (b"", b"nothing", pickle.dumps(np.arange(9))[:-9]):
        refused("^file: not a pickle of arrays .*fetch it again", pickles.loads, blob, "file")
