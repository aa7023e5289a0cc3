"""Images decoded on access, and rows read ahead."""

import io

import numpy as np
from PIL import Image

from fedwin import data
from fedwin.data import example_source
from fedwin.data.example_source import Member
from tests.data.files import picture, refused


def test_images_behave_like_a_read_only_array():
    images = data.Images([Member("", picture((k, 2 * k, 0), (10, 8), "PNG")) for k in range(6)], 4, 6)
    whole = np.asarray(images)
    assert images.shape == whole.shape == (6, 4, 4, 3) and images.dtype == whole.dtype and len(images) == 6
    np.testing.assert_array_equal(whole[:, 1, 1, 1], 2 * np.arange(6))
    for rows in (3, slice(1, 4), [5, 0, 0], np.array([True, False] * 3), -1):
        np.testing.assert_array_equal(images[rows], whole[rows])
    gray = data.Images([Member("", picture((9, 9, 9), kind="PNG"))], 4, channels=1)
    assert gray[0].shape == (4, 4, 1) and gray[0].max() == 9
    refused("resize >= size", data.Images, [], 10, 5)
    for dtype in (np.uint16, np.int32, np.float32):
        Image.fromarray(np.full((4, 4), 3000, dtype)).save(stream := io.BytesIO(), "TIFF")
        refused("mode [IF].* more than 8 bits", example_source.decode_whole, Member("", stream.getvalue()))


def test_the_short_side_is_scaled_and_the_center_cut():
    wide = np.zeros((10, 40, 3), np.uint8)
    wide[:, 15:25] = 255
    stream = io.BytesIO()
    Image.fromarray(wide).save(stream, "PNG")
    cut = example_source.decode(Member("", stream.getvalue()), 8, 10)
    assert cut.shape == (8, 8, 3) and (cut == 255).all()


def test_gather_and_prefetch_give_the_same_rows(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(200).reshape(50, 4))
    images = data.Images([Member("", picture((k, 0, 0), (4, 4), "PNG")) for k in range(50)], 4)
    features = {"x": images, "m": np.load(tmp_path / "x.npy", mmap_mode="r"), "y": np.arange(50)}
    with data.ExampleSource(features) as lazy:
        assert lazy.length == 50
        rows = np.random.default_rng(0).integers(0, 50, (7, 2, 3))
        for batch, examples in zip(rows, lazy.prefetch(iter(rows)), strict=True):
            assert examples["x"].shape == (2, 3, 4, 4, 3)
            np.testing.assert_array_equal(examples["x"][..., 0, 0, 0], batch)
            np.testing.assert_array_equal(examples["m"][..., 0], 4 * batch)
            np.testing.assert_array_equal(examples["y"], batch)
            assert not isinstance(examples["m"], np.memmap)
        taken = []
        next(lazy.prefetch((taken.append(k) or np.array([k]) for k in range(10)), depth=2))
        assert taken == [0, 1, 2]  # the batch in hand and two ahead
        assert lazy.gather(np.zeros((0,), int))["x"].shape == (0, 4, 4, 3)
        for bad in ([50], [-1]):
            refused("is not in 0..49", lazy.gather, bad)
