"""Blockwise arrays: bytes, holes and placement equal those of the whole array."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from fedwin.residence import blockwise


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blockwise, "BLOCK_BYTES", 64)
    monkeypatch.setattr(blockwise, "PIECE_BYTES", 16)


def shardings():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("clients",))
    return [None, *(NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("clients",), (None, "clients")))]


@pytest.mark.parametrize("number", range(4))
def test_a_file_holds_the_bytes_and_goes_back_to_its_devices(number, tmp_path):
    values = np.arange(10 * 6, dtype=np.float32).reshape(10, 6)
    values[3:8] = 0
    where = shardings()[number]
    blockwise.write(tmp_path / "a", jax.device_put(values, where))
    assert (tmp_path / "a").read_bytes() == values.tobytes()
    stored = blockwise.Stored(tmp_path / "a", values.shape, values.dtype)
    placed = blockwise.place(stored, where)
    np.testing.assert_array_equal(placed, values)
    np.testing.assert_array_equal(stored[2:9], values[2:9])
    assert where is None or placed.sharding == where


@pytest.mark.parametrize("number", range(4))
def test_reading_a_device_array_in_blocks_leaves_it_to_be_donated(number):
    where = shardings()[number]
    array = jax.jit(lambda: jnp.ones((10, 6)), out_shardings=where)()
    pointers = lambda array: [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
    at = pointers(array)
    assert sum(block.sum() for block in blockwise.blocks(array)) == 60
    changed = jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    assert array.is_deleted() and pointers(changed) == at
    at = pointers(changed)
    changed = blockwise.set_rows(changed, np.array([7, 2]), np.zeros((2, 6), np.float32))
    np.testing.assert_array_equal(changed, np.where(np.isin(np.arange(10), [2, 7]), 0, 2)[:, None] * np.ones(6))
    assert pointers(changed) == at and (where is None or changed.sharding.is_equivalent_to(where, 2))


def test_rows_are_picked_when_they_are_read():
    source, ids = np.arange(40.0).reshape(20, 2), np.array([3, 1, 7])
    picked = blockwise.Picked(source, ids)
    np.testing.assert_array_equal(np.concatenate(list(blockwise.blocks(picked))), source[ids])
    assert picked.shape == (3, 2) and picked.dtype == source.dtype
    np.testing.assert_array_equal(picked[np.array([2, 0])], source[[7, 3]])
    assert picked[np.zeros(0, int)].shape == (0, 2)
