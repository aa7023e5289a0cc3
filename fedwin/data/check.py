"""What must hold of every data set before anything is trained on it."""

import numpy as np

from fedwin.data.dataset import Dataset
from fedwin.errors import UserError

CHUNK = 1 << 24


def check(dataset: Dataset) -> Dataset:
    """Returns the data set; raises UserError naming the feature and the record that is wrong.

    Lengths agree, labels lie in 0..num_classes-1, floating-point inputs are finite, train and test have the same
    shapes, and clients of the data set's own have an example each.
    """
    for split, features in (("train", dataset.train), ("test", dataset.test)):
        where = f"data set '{dataset.name}', {split}"
        lengths = {key: len(value) for key, value in features.items()}
        if "x" not in features or "y" not in features:
            raise UserError(f"{where}: features are {', '.join(features)}; 'x' and 'y' are needed.")
        if len(set(lengths.values())) > 1:
            raise UserError(f"{where}: features differ in length: {lengths}.")
        if not lengths["y"]:
            raise UserError(f"{where}: there is no example.")
        check_labels(features["y"], dataset.num_classes, where)
        if isinstance(features["x"], np.ndarray):
            check_finite(features["x"], where)
    for key in ("x", "y"):
        if tuple(dataset.train[key].shape[1:]) != tuple(dataset.test[key].shape[1:]):
            raise UserError(
                f"data set '{dataset.name}': '{key}' has shape {dataset.train[key].shape[1:]} in train and "
                f"{dataset.test[key].shape[1:]} in test."
            )
    check_clients(dataset)
    return dataset


def check_labels(labels, num_classes: int, where: str) -> None:
    """Raises UserError naming the first record with a label outside 0..num_classes-1."""
    labels = np.asarray(labels)
    if not np.issubdtype(labels.dtype, np.integer):
        raise UserError(f"{where}: labels are {labels.dtype}; they must be whole numbers.")
    if labels.min() < 0 or labels.max() >= num_classes:
        bad = (labels < 0) | (labels >= num_classes)
        row = int(np.argmax(bad.reshape(len(labels), -1).any(1)))
        value = labels[row] if labels.ndim == 1 else labels[row][bad[row]][0]
        raise UserError(f"{where}, record {row}: label {value} is not in 0..{num_classes - 1}.")


def check_finite(x: np.ndarray, where: str) -> None:
    """Raises UserError naming the first record with a NaN or infinite value."""
    if not np.issubdtype(x.dtype, np.floating):
        return
    rows = max(CHUNK // max(int(np.prod(x.shape[1:])), 1), 1)
    for start in range(0, len(x), rows):
        finite = np.isfinite(x[start : start + rows]).reshape(len(x[start : start + rows]), -1).all(1)
        if not finite.all():
            raise UserError(f"{where}, record {start + int(np.argmin(finite))}: 'x' has NaN or infinite values.")


def check_clients(dataset: Dataset) -> None:
    """Raises UserError naming a client of the data set's own that is empty or occurs twice."""
    own = dataset.natural
    if own is None:
        return
    empty = np.flatnonzero(own.sizes < 1)
    if len(empty):
        who = empty[0] if own.ids is None else own.ids[empty[0]]
        raise UserError(f"data set '{dataset.name}': client {who} has no training example; remove it from the files.")
    if own.ids is not None:
        ids, counts = np.unique(own.ids, return_counts=True)
        if counts.max(initial=1) > 1:
            raise UserError(f"data set '{dataset.name}': client id {ids[counts.argmax()]} occurs twice.")
