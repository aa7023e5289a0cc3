"""Augmentation and normalization of examples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import augment
from fedwin.augment import AUGMENTATIONS
from tests.refusals import refused

KEY = jax.random.key(3, impl="threefry2x32")


def coordinates(count, height, width):
    """Images whose two channels are the row and the column of each pixel, counted from 1: 0 is padding."""
    rows, columns = np.mgrid[1 : height + 1, 1 : width + 1]
    return jnp.asarray(np.broadcast_to(np.stack([rows, columns], -1), (count, height, width, 2)), jnp.uint8)


def test_a_random_cut_of_a_larger_image_is_where_it_says_and_everywhere():
    cut = np.asarray(AUGMENTATIONS.build("crop_flip:size=6").train(coordinates(400, 8, 10), KEY))
    assert cut.shape == (400, 6, 6, 2) and cut.min() >= 1
    tops = cut[:, 0, 0, 0]
    mirrored = cut[:, 0, 0, 1] > cut[:, 0, 5, 1]
    lefts = np.where(mirrored, cut[:, 0, 5, 1], cut[:, 0, 0, 1])
    for image, top, left, mirror in zip(cut, tops, lefts, mirrored):
        plain = image[:, ::-1] if mirror else image
        np.testing.assert_array_equal(
            plain, np.asarray(coordinates(1, 8, 10))[0, top - 1 : top + 5, left - 1 : left + 5]
        )
    # 3 x 5 places, each of them as likely as any other, and half of the images mirrored.
    counts = np.bincount(tops * 10 + lefts)[[10 * t + c for t in (1, 2, 3) for c in (1, 2, 3, 4, 5)]]
    assert counts.sum() == 400 and counts.min() > 8 and abs(mirrored.mean() - 0.5) < 0.1


def test_images_of_a_batch_can_share_a_place_and_a_mirroring():
    train = AUGMENTATIONS.build("crop_flip:size=6,per_batch=true").train
    cut = np.asarray(jax.vmap(lambda key: train(coordinates(5, 8, 10), key))(jax.random.split(KEY, 200)))
    assert (cut == cut[:, :1]).all() and len(np.unique(cut[:, 0], axis=0)) == 2 * 3 * 5


def test_the_central_cut_is_evaluated_and_the_network_is_of_its_size():
    images = coordinates(3, 8, 10)
    for text in ("crop_flip:size=6", "crop_flip", "flip", "none"):
        shape = (6, 6, 2) if "size" in text else (8, 10, 2)
        built = AUGMENTATIONS.build(text)
        tested = augment.normalizer(None, None, built)({"x": images})["x"]
        trained = augment.train_preparation(None, None, built)({"x": images}, KEY)["x"]
        assert tested.shape[1:] == trained.shape[1:] == augment.output_shape(built, (8, 10, 2)) == shape
    central = augment.normalizer(None, None, AUGMENTATIONS.build("crop_flip:size=6"))({"x": images})["x"] * 255
    np.testing.assert_allclose(central, images[:, 1:7, 2:8], rtol=1e-6)


def test_padding_is_black_before_normalization_and_nine_places_are_equally_likely():
    images = jnp.full((900, 6, 6, 1), 255, jnp.uint8)
    prepare = augment.train_preparation((0.5,), (0.25,), AUGMENTATIONS.build("crop_flip:padding=4"))
    out = np.asarray(prepare({"x": images}, KEY)["x"])
    assert set(np.unique(out)) == {-2.0, 2.0}
    rows = (out > 0).any((2, 3)).sum(1)  # 6 - |offset| rows are left of the image
    assert abs((rows == 6).mean() - 1 / 9) < 0.04 and abs((rows == 2).mean() - 2 / 9) < 0.05


def test_tokens_and_floats_are_left_or_scaled():
    tokens = jnp.arange(6).reshape(2, 3)
    assert augment.normalizer((0.5,), (0.5,))({"x": tokens, "y": 1})["x"] is tokens
    assert augment.output_shape(AUGMENTATIONS.build("none"), (20,)) == (20,)
    np.testing.assert_allclose(augment.normalizer((1.0,), (2.0,))({"x": jnp.ones((1, 2, 2, 1)) * 3})["x"], 1.0)
    assert augment.normalizer((0.0,), (1e-9,))({"x": jnp.ones((1, 1), jnp.float16)})["x"][0, 0] == 1e9  # not in float16


@pytest.mark.parametrize(
    "text, shape, message",
    [
        ("crop_flip:size=9", (8, 10, 3), "size=9 cannot be cut from images of 8 x 10"),
        ("crop_flip:size=8", (8, 8, 3), "size=8 is that of the images; give a padding"),
        ("crop_flip:padding=0", (8, 10, 3), "padding=0"),
        ("flip", (20,), r"needs images .* examples \[20\]"),
    ],
)
def test_what_cannot_be_cut_is_refused(text, shape, message):
    refused(message, lambda: augment.output_shape(AUGMENTATIONS.build(text), shape))
