"""Handwritten digits that come with scikit-learn: a data set that is always available.

1,797 images of 8x8 pixels in 17 gray levels, the test part of the UCI 'Optical Recognition of Handwritten Digits' set,
https://archive.ics.uci.edu/dataset/80.
"""

import importlib.util

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, FullSize
from fedwin.data.rng import generator

TRAIN_PER_CLASS = 140


@DATASETS.register("digits", how="comes with scikit-learn", full=FullSize(1_400, 397), classes=10)
def digits(data_dir=None) -> Dataset:
    """Handwritten digits: x uint8 [N, 8, 8, 1] (gray level g as round(255 g / 16)), y in 0..9; reads no data_dir.

    The split is fixed and stratified: 140 images of every class for training (1,400), the other 34 to 43 for testing
    (397). Since classes are equal, every number of clients that divides 1,400 gets equal shares, down to one class per
    client.

    Source: https://archive.ics.uci.edu/dataset/80.

    Example:
      >>> digits().train["x"].shape
      (1400, 8, 8, 1)
    """
    table = np.loadtxt(sklearn_file("digits.csv.gz"), delimiter=",")
    x = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    y = table[:, -1].astype(np.int32)
    # Neighboring images come from the same writers, so the split is random, with a fixed seed.
    shuffled = generator(0, "digits split").permutation(len(y))
    by_class = [shuffled[y[shuffled] == label] for label in range(10)]
    train = np.sort(np.concatenate([rows[:TRAIN_PER_CLASS] for rows in by_class]))
    test = np.sort(np.concatenate([rows[TRAIN_PER_CLASS:] for rows in by_class]))
    return Dataset(
        name="digits",
        train={"x": x[train], "y": y[train]},
        test={"x": x[test], "y": y[test]},
        num_classes=10,
        mean=(0.3056,),
        std=(0.3761,),
        class_names=tuple("0123456789"),
    )


def sklearn_file(name: str) -> str:
    """Returns the path of a file of scikit-learn's data sets."""
    # Importing scikit-learn would take longer than the rest of a short run.
    spec = importlib.util.find_spec("sklearn")
    assert spec is not None and spec.submodule_search_locations is not None  # fedwin requires it
    return f"{spec.submodule_search_locations[0]}/datasets/data/{name}"
