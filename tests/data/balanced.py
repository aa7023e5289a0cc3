"""Label-only data sets for partition tests."""

import numpy as np

from fedwin import data


def labelled(labels, num_classes, **features) -> data.Dataset:
    """A data set that has nothing but labels; partitioners look at nothing else."""
    examples = {"x": np.zeros((len(labels), 1), np.uint8), "y": np.asarray(labels, np.int32), **features}
    return data.Dataset("labelled", examples, examples, num_classes)


def balanced(num_classes: int, n: int) -> data.Dataset:
    """n examples, classes in random order; 100 classes come with 20 coarse labels of 5."""
    labels = np.random.default_rng(7).permutation(np.arange(n) % num_classes).astype(np.int32)
    coarse = {"coarse": labels // 5} if num_classes == 100 else {}
    return labelled(labels, num_classes, **coarse)
