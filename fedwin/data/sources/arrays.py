"""Data sets from arrays or series in memory (`from_arrays`, `from_series`) and from .npz files."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from fedwin.data.checks import as_labels, check, check_task, count_classes
from fedwin.data.dataset import DATASETS, Dataset, Partition, Task, floor_of_share, offsets
from fedwin.data.formats import clients as of_clients
from fedwin.data.formats import files
from fedwin.errors import UserError
from fedwin.registry.ranges import PositiveInt, PositiveShare, check_values


def from_arrays(
    train_x,
    train_y,
    test_x,
    test_y,
    *,
    name: str = "arrays",
    num_classes: int | None = None,
    task: Task | None = None,
    clients=None,
    mean=None,
    std=None,
) -> Dataset:
    """Builds a data set from arrays.

    Args:
      train_x: training inputs [N, ...]; images are uint8, NHWC.
      train_y: training labels, whole numbers [N] or, for sequences, [N, T]; any numbers [N] for regression.
      num_classes: number of classes; the largest training label + 1 by default.
      task: 'classification', 'sequence' or 'regression'; by default 'sequence' for labels [N, T] of more than two
        values, else 'classification'.
      clients: client of each training example [N], for a data set with its own clients.
      mean: per-channel mean of x, after division by 255 if x is uint8.
      std: per-channel standard deviation of x, likewise.

    Raises:
      UserError: no examples, different lengths, wrong labels, inputs without features, NaN or infinite values.

    Example:
      >>> dataset = from_arrays(np.zeros([4, 3]), [0, 1, 2, 0], np.zeros([2, 3]), [0, 1])
      >>> dataset.num_classes, dataset.task, len(dataset.train["y"])
      (3, 'classification', 4)
    """
    if not isinstance(name, str):
        raise UserError(f"from_arrays: name={name!r} must be text.")
    check_values(f"data set '{name}'", PositiveInt | None, num_classes=num_classes)
    train, test = (
        {"x": _array(x, where), "y": as_labels(_array(y, split), where, task)}
        for split, x, y in (("train", train_x, train_y), ("test", test_x, test_y))
        for where in [f"data set '{name}', {split}"]
    )
    if not train["y"].shape or not len(train["y"]):
        raise UserError(f"{name}: there is no training example.")
    natural = None if clients is None else by_client(np.asarray(clients), len(train["y"]), name)
    return check(
        Dataset(
            name,
            train,
            test,
            count_classes(train["y"], num_classes, task),
            task=check_task(train["y"], task, f"data set '{name}', train"),
            mean=mean,
            std=std,
            natural=natural,
        )
    )


def from_series(
    series: Mapping, *, window: int, horizon: int = 1, test_share: float = 0.2, name: str = "series"
) -> Dataset:
    """Builds a data set from windows of time series, one series per client; labels are later values.

        x_t = (s_{t - h - W + 1}, ..., s_{t - h}),   y_t = s_t

    A client's test examples are those with y in the last share of its series: no training label is later.

    Args:
      series: client -> numbers [T], or [T, F], of which the first column is predicted.
      window: W, length of a window.
      horizon: h, steps from the last value of a window to its label.
      test_share: share of each series, at its end, whose values are the labels of test examples.

    Raises:
      UserError: a series is too short, has another shape or does not consist of finite numbers.

    Example:
      >>> dataset = from_series({"ann": range(10), "bob": range(20)}, window=3)
      >>> dataset.train["x"][0], dataset.train["y"][0], dataset.natural.sizes
      (array([0., 1., 2.], dtype=float32), np.float32(3.0), array([ 5, 13]))
    """
    if not isinstance(series, Mapping):
        raise UserError(f"from_series: series is a {type(series).__name__}; give a dict, client -> numbers.")
    check_values(f"data set '{name}'", PositiveInt, window=window, horizon=horizon)
    check_values(f"data set '{name}'", PositiveShare, test_share=test_share)

    def examples(client, tested: bool):
        where = f"data set '{name}', client '{client}'"
        values = np.asarray(_array(series[client], where))
        if values.dtype.kind not in "iuf" or values.ndim not in (1, 2) or not np.isfinite(values).all():
            raise UserError(f"{where}: {values.dtype} of shape {values.shape}; give finite numbers [T] or [T, F].")
        first = len(values) - max(int(floor_of_share(test_share, len(values))), 1)
        t = np.arange(first, len(values)) if tested else np.arange(window + horizon - 1, first)
        if first < window + horizon:
            raise UserError(f"{where}: {len(values)} values are too few for {window=}, {horizon=}, {test_share=}.")
        x = values[t[:, None] + np.arange(1 - window, 1) - horizon]
        return {"x": x.astype(np.float32), "y": values[t].reshape(len(t), -1)[:, 0].astype(np.float32)}

    sides = [
        of_clients.flatten(((str(client), examples(client, tested)) for client in series), name)
        for tested in (False, True)
    ]
    return check(Dataset.of_clients(name, sides, 1, task="regression"))


def _array(values, where: str) -> np.ndarray:
    """Converts to an array in the machine's byte order; raises UserError if rows have different lengths."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise UserError(f"{where}: not an array; give all examples the same shape.") from error
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def by_client(clients: np.ndarray, examples: int, name: str) -> Partition:
    """Groups N examples by client, in order of the client ids, which become text; `name` is the data set.

    Raises:
      UserError: not N clients, or ids that are NaN or neither numbers nor text.
    """
    if clients.dtype.kind in "OT" and set(map(type, clients.tolist())) in ({str}, {bytes}, {int}):  # of pandas
        clients = np.array(clients.tolist())
    if clients.shape != (examples,):
        raise UserError(f"{name}: {clients.shape} clients for {examples} training examples; give one for each.")
    if clients.dtype.kind not in "biufSU":
        raise UserError(f"{name}: client ids are {clients.dtype}; give whole numbers or text.")
    if clients.dtype.kind == "f" and not np.isfinite(clients).all():
        row = int(np.argmin(np.isfinite(clients)))
        raise UserError(f"{name}, train, record {row}: the client id is {clients[row]}; give every example a client.")
    ids, counts = np.unique(clients, return_counts=True)
    names = ids if ids.dtype.kind in "SU" else ids.astype(str)
    return Partition(np.argsort(clients, kind="stable").astype(np.int32), offsets(counts), ids=names)


@DATASETS.register("npz", how="your own")
def npz(
    data_dir,
    *,
    file: str = "data.npz",
    num_classes: PositiveInt | None = None,
    task: Task | None = None,
    window: PositiveInt | None = None,
    horizon: PositiveInt = 1,
    test_share: PositiveShare = 0.2,
) -> Dataset:
    """Loads a NumPy archive with x_train, y_train, x_test, y_test and optionally client_train [N].

    With `window` it loads windows of time series: each array [T] or [T, F] is a client, as in `from_series`.

    Args:
      data_dir: the archive's folder, or the file itself.
      file: its name.

    Raises:
      UserError: a file or array is missing or damaged, a parameter or array has no effect, or as for `from_arrays` or
        `from_series`.
    """
    if window is None and (horizon, test_share) != (1, 0.2):
        raise UserError("npz: horizon and test_share have no effect without window; leave them out.")
    if window is not None and (num_classes, task) not in ((None, None), (None, "regression")):
        raise UserError("npz: window makes a regression of one number; leave num_classes and task out.")
    root = files.folders(data_dir)[0]
    path = root if root.is_file() else root / file
    with files.reading(path, "not a readable .npz file of arrays", "write it with np.savez, text with .astype(str)"):
        arrays = files.read_npz(path)
    needed = {"x_train", "y_train", "x_test", "y_test"} if window is None else set()
    if absent := sorted(needed - set(arrays)):
        raise UserError(f"{path}: {', '.join(absent)} missing; it contains {', '.join(arrays) or 'nothing'}.")
    if needed and (unread := sorted(set(arrays) - needed - {"client_train"})):
        raise UserError(f"{path}: {', '.join(unread)} has no effect; leave it out (only client_train names clients).")
    try:
        if window is not None:
            dataset = from_series(arrays, window=window, horizon=horizon, test_share=test_share)
        else:
            dataset = from_arrays(
                *(arrays[name] for name in ("x_train", "y_train", "x_test", "y_test")),
                name="npz",
                num_classes=num_classes,
                task=task,
                clients=arrays.get("client_train"),
            )
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return dataclasses.replace(dataset, verified=False)
