"""The handwritten digits of scikit-learn."""

import importlib.util

import numpy as np

from fedwin import data


def test_digits_are_uint8_with_a_fixed_stratified_split_of_the_whole_set():
    digits = data.load("digits")
    assert digits.train["x"].shape == (1400, 8, 8, 1) and digits.test["x"].shape == (397, 8, 8, 1)
    assert digits.train["x"].dtype == np.uint8 and digits.train["y"].dtype == np.int32
    assert (np.bincount(digits.train["y"]) == 140).all()
    assert 33 < np.bincount(digits.test["y"]).min() and np.bincount(digits.test["y"]).max() < 44
    assert digits.train["x"].max() == 255 and len(np.unique(digits.train["x"])) == 17
    scaled = digits.train["x"] / 255
    assert abs(scaled.mean() - digits.mean[0]) < 1e-4 and abs(scaled.std() - digits.std[0]) < 1e-4
    whole = np.concatenate([digits.train["x"], digits.test["x"]]).reshape(1797, -1)
    (folder,) = importlib.util.find_spec("sklearn").submodule_search_locations
    table = np.loadtxt(f"{folder}/datasets/data/digits.csv.gz", delimiter=",")
    original = np.rint(table[:, :-1] * 255 / 16).astype(np.uint8)
    assert sorted(map(bytes, whole)) == sorted(map(bytes, original))
