"""Checks of data sets: shapes, lengths, label ranges, finite values and clients."""

import numpy as np

from fedwin.data.dataset import TASKS, Dataset, Partition
from fedwin.data.formats import clients
from fedwin.errors import UserError
from fedwin.registry.ranges import one_of

CHUNK = 1 << 24
RENUMBERED = "np.searchsorted(np.unique(train_labels), labels)"


def check(dataset: Dataset) -> Dataset:
    """Checks a data set before anything is trained on it.

    Features of a split have the same length, labels lie in 0..num_classes - 1 and fit the task, domains have names (if
    any has one), inputs have a feature axis and a type that networks accept, floats are finite, train and test have the
    same shapes and kinds of inputs, `mean` and `std` fit the channels, and each of the data set's clients has examples.

    Raises:
      UserError: names the feature and the record that is wrong.
    """
    for split, features in (("train", dataset.train), ("test", dataset.test)):
        where = f"data set '{dataset.name}', {split}"
        if "x" not in features or "y" not in features:
            raise UserError(f"{where}: features are {', '.join(features)}; 'x' and 'y' are needed.")
        if single := next((key for key, value in features.items() if not value.shape), None):
            raise UserError(f"{where}: '{single}' is a single number; give an array with one entry per example.")
        lengths = {key: len(value) for key, value in features.items()}
        if len(set(lengths.values())) > 1:
            raise UserError(f"{where}: features differ in length: {lengths}.")
        check_task(features["y"], dataset.task, where)
        check_labels(features["y"], dataset, where)
        check_range(np.asarray(features.get("domain", [0])), len(dataset.domain_names) or 1 << 31, "domain", where)
        if len(features["x"].shape) < 2 or 0 in features["x"].shape[1:]:
            raise UserError(
                f"{where}: 'x' has shape {tuple(features['x'].shape)}, which holds no features; give [N, features...]."
            )
        if isinstance(features["x"], np.ndarray):
            check_inputs(features["x"], dataset, where)
        for key, value in features.items():
            if key != "x" and isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating):
                check_finite(value, where, key)
    for key in ("x", "y"):
        if tuple(dataset.train[key].shape[1:]) != tuple(dataset.test[key].shape[1:]):
            raise UserError(
                f"data set '{dataset.name}': '{key}' has shape {dataset.train[key].shape[1:]} in train and "
                f"{dataset.test[key].shape[1:]} in test."
            )
    types = [features["x"].dtype for features in (dataset.train, dataset.test)]
    if len({(dtype == np.uint8, np.issubdtype(dtype, np.floating)) for dtype in types}) > 1:
        raise UserError(
            f"data set '{dataset.name}': 'x' is {types[0]} in train and {types[1]} in test; uint8 is divided by 255, "
            "floating point is not: give both as one."
        )
    check_scaling(dataset)
    check_clients(dataset)
    return dataset


def check_labels(labels, dataset: Dataset, where: str) -> None:
    """Checks that labels [N, ...] are whole numbers in 0..num_classes - 1, or finite ones for regression.

    Raises:
      UserError: there are no labels, or some are wrong; names the first such record.
    """
    labels = np.asarray(labels)
    if not labels.size:
        raise UserError(f"{where}: there is no example.")
    if dataset.task != "regression":
        check_range(_whole(labels, where), dataset.num_classes, "label", where)
    elif not np.issubdtype(labels.dtype, np.floating) or dataset.num_classes != 1:
        raise UserError(f"{where}: labels are {labels.dtype}; a regression has floating-point ones and num_classes=1.")
    else:
        check_finite(labels, where, "y")


def check_range(ids: np.ndarray, count: int, what: str, where: str) -> None:
    """Raises UserError naming the first record of `ids` [N, ...] whose number, a `what`, is not in 0..count - 1."""
    if ids.min() < 0 or ids.max() >= count:
        bad = (ids < 0) | (ids >= count)
        row = int(np.argmax(bad.reshape(len(ids), -1).any(1)))
        value = ids[row] if ids.ndim == 1 else ids[row][bad[row]][0]
        remedy = f"; drop unlabeled examples, or use {RENUMBERED}" if value < 0 and what == "label" else ""
        raise UserError(f"{where}, record {row}: {what} {value} is not in 0..{count - 1}{remedy}.")


def check_inputs(x: np.ndarray, dataset: Dataset, where: str) -> None:
    """Raises UserError if a network would misinterpret inputs [N, ...]; `where` is the data set and split.

    Networks divide uint8 by 255, use floating-point numbers unchanged and embed other integers as token ids, so images
    must not be int32, and tokens must not be uint8.
    """
    if x.ndim == 4 and x.shape[1] in (1, 3) and x.shape[2] == x.shape[3] > 4:
        raise UserError(f"{where}: images are {x.shape[1:]}, channels first; give x.transpose(0, 2, 3, 1).")
    if np.issubdtype(x.dtype, np.floating):
        check_finite(x, where)
    elif not np.issubdtype(x.dtype, np.integer):
        raise UserError(f"{where}: 'x' is {x.dtype}; give uint8 images, floating-point numbers or whole-number tokens.")
    elif dataset.task == "sequence":
        if x.dtype == np.uint8:
            raise UserError(f"{where}: tokens are uint8, which means images; give them as int32.")
        if x.size:
            check_range(x, dataset.num_classes, "token", where)
    elif x.dtype != np.uint8 and x.ndim > 2:
        raise UserError(f"{where}: images are {x.dtype}, which is not scaled; give them as uint8 or as floating point.")


def check_finite(values: np.ndarray, where: str, key: str = "x") -> None:
    """Raises UserError naming the first record of a feature's values [N, ...] that has a NaN or infinite one."""
    rows = max(CHUNK // max(int(np.prod(values.shape[1:])), 1), 1)
    for start in range(0, len(values), rows):
        part = values[start : start + rows]
        finite = np.isfinite(part).reshape(len(part), -1).all(1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise UserError(f"{where}, record {row}: '{key}' has NaN or infinite values; remove or replace them.")


def check_scaling(dataset: Dataset) -> None:
    """Checks a data set's `mean` and `std`.

    Raises:
      UserError: not one finite number per channel, a deviation that is not positive, a mean of tokens, one above 1 of
        uint8 images, or only one of the two.
    """
    name, channels = dataset.name, dataset.train["x"].shape[-1]
    given = {what: value for what in ("mean", "std") if (value := getattr(dataset, what)) is not None}
    for what, value in given.items():
        kind, least = ("positive", 0.0) if what == "std" else ("finite", -np.inf)
        try:
            numbers = np.asarray(value, float)
        except (TypeError, ValueError):
            numbers = np.full(1, np.nan)
        fits = numbers.size in (1, channels) and np.broadcast(numbers, np.empty(channels)).size == channels
        if not fits or not (np.isfinite(numbers) & (numbers > least)).all():
            raise UserError(f"data set '{name}': {what}={value!r} must be {channels} {kind} numbers, one per channel.")
    if len(given) == 1:
        raise UserError(f"data set '{name}': {next(iter(given))} is given alone; give mean and std, or neither.")
    dtype = dataset.train["x"].dtype
    if given and dtype != np.uint8 and not np.issubdtype(dtype, np.floating):
        raise UserError(f"data set '{name}': mean and std do not apply to {dtype} tokens; give 'x' as floating point.")
    if given and dtype == np.uint8 and np.max(given["mean"]) > 1:
        raise UserError(f"data set '{name}': mean={dataset.mean!r} is above 1; give that of x / 255, since x is uint8.")


def check_task(labels, task: str | None, where: str) -> str:
    """Returns the task of labels: 'classification' for [N], 'sequence' for [N, T], in which 0 is padding, or as given.

    Raises:
      UserError: labels that do not fit the given task, or any task; without one, also a column, and rows of two values.
    """
    if task is not None:
        one_of(f"{where}: task", task, TASKS)
    remedy = "" if task == "sequence" else _remedy(labels)
    if remedy or labels.ndim > 2 or (task and (task == "sequence") != (labels.ndim > 1)):
        raise UserError(
            f"{where}: labels have shape {labels.shape}{remedy}; a sequence has [N, T] and task='sequence', others [N]."
        )
    return task or TASKS[labels.ndim > 1]


def _remedy(labels: np.ndarray) -> str:
    """Returns how to make labels [N] from a column, one-hot rows or other rows of two values; '' for others."""
    if labels.ndim != 2 or not labels.size or labels.dtype.kind not in "biuf":
        return ""
    if labels.shape[1] == 1:
        return ", a column: pass labels[:, 0]"
    low, high = labels.min(), labels.max()
    if not ((labels == low) | (labels == high)).all():
        return ""
    if low < high and ((labels == high).sum(1) == 1).all():
        return ", one-hot labels: pass labels.argmax(-1)"
    return f" and are all {low} or {high}: give each example one class"


def count_classes(labels: np.ndarray, num_classes: int | None, task: str | None) -> int:
    """Returns the number of classes: as given, else the largest label + 1, or 1 for regression."""
    if num_classes is not None:
        return int(num_classes)
    return 1 if task == "regression" else int(labels.max()) + 1


def classes_without_examples(dataset: Dataset) -> list[int]:
    """Returns the classes that no training example has; [] for sequences, whose vocabulary may be larger."""
    seen = dataset.train["y"] if dataset.task == "classification" else range(dataset.num_classes)
    return np.flatnonzero(np.bincount(seen, minlength=dataset.num_classes) == 0).tolist()


def as_labels(labels, where: str, task: str | None = None) -> np.ndarray:
    """Casts labels, whole numbers [N] or [N, T], to int32, or labels of regression to float32.

    Raises:
      UserError: numbers that are not whole or do not fit into int32, which a cast would wrap.
    """
    if task == "regression" and np.asarray(labels).dtype.kind in "iuf":
        return np.asarray(labels, np.float32)
    labels = _whole(labels, where)
    if labels.size and labels.dtype != np.int32 and (labels.min() < -(1 << 31) or labels.max() >= 1 << 31):
        check_range(np.atleast_1d(labels), 1 << 31, "label", where)
    return labels.astype(np.int32)


def _whole(labels, where: str) -> np.ndarray:
    labels = np.asarray(labels)
    if not np.issubdtype(labels.dtype, np.integer):
        continuous = "; or set task=regression" * np.issubdtype(labels.dtype, np.floating)
        remedy = _remedy(labels) or f", such as {RENUMBERED}{continuous}"
        raise UserError(f"{where}: labels are {labels.dtype}; they must be whole numbers{remedy}.")
    return labels


def check_not_empty(partition: Partition, remedy: str = "use fewer clients or a larger alpha") -> None:
    """Raises UserError naming the first client without examples, with a remedy."""
    sizes = partition.sizes
    if sizes.size and sizes.min() < 1:
        k = int(sizes.argmin())
        name = k if partition.ids is None else clients.text(partition.ids[k])
        raise UserError(
            f"client {name} has no examples ({int((sizes < 1).sum())} of {len(sizes)} clients are empty); {remedy}."
        )


def check_clients(dataset: Dataset) -> None:
    """Raises UserError naming one of the data set's own clients that is empty or occurs twice."""
    if (own := dataset.natural) is None:
        return
    check_not_empty(own, f"remove it from the files of '{dataset.name}'")
    if own.ids is not None:
        ids, counts = np.unique(own.ids, return_counts=True)
        if counts.max(initial=1) > 1:
            raise UserError(f"data set '{dataset.name}': client id {clients.text(ids[counts.argmax()])} occurs twice.")
