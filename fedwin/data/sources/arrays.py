"""Data sets that are already arrays."""

import numpy as np

from fedwin.data.check import check
from fedwin.data.dataset import Dataset, Partition, offsets
from fedwin.data.formats import files
from fedwin.data.registries import DATASETS
from fedwin.errors import UserError


def from_arrays(
    train_x,
    train_y,
    test_x,
    test_y,
    *,
    name: str = "arrays",
    num_classes: int | None = None,
    clients=None,
    mean=None,
    std=None,
) -> Dataset:
    """Wraps arrays as a data set.

    Args:
      train_x, test_x: [N, ...] inputs; images uint8, NHWC.
      train_y, test_y: whole-number labels, [N] or, for sequences, [N, T].
      num_classes: the largest training label + 1 by default.
      clients: [N] the client of each training example, for a data set with its own clients.
      mean, std: per-channel normalisation of x.

    Raises:
      UserError: lengths that differ, labels out of range, NaN.
    """
    labels = [np.asarray(y) for y in (train_y, test_y)]
    if any(not np.issubdtype(y.dtype, np.integer) for y in labels):
        raise UserError(f"{name}: labels are {labels[0].dtype} and {labels[1].dtype}; they must be whole numbers.")
    train, test = ({"x": np.asarray(x), "y": y.astype(np.int32)} for x, y in zip((train_x, test_x), labels))
    if not train["y"].shape or not len(train["y"]):
        raise UserError(f"{name}: there is no training example.")
    natural = None
    if clients is not None:
        clients = np.asarray(clients)
        if clients.shape != train["y"].shape[:1]:
            raise UserError(
                f"{name}: {clients.shape} clients for {len(train['y'])} training examples; give one for each."
            )
        ids, counts = np.unique(clients, return_counts=True)
        names = ids if ids.dtype.kind in "SU" else ids.astype(str)
        natural = Partition(np.argsort(clients, kind="stable").astype(np.int32), offsets(counts), ids=names)
    return check(
        Dataset(
            name,
            train,
            test,
            int(train["y"].max()) + 1 if num_classes is None else num_classes,
            task="sequence" if train["y"].ndim > 1 else "classification",
            mean=mean,
            std=std,
            natural=natural,
        )
    )


@DATASETS.register(
    "npz",
    title="arrays",
    flag="`npz`, `fedwin.data.from_arrays`",
    how="your own",
)
def npz(data_dir, *, file: str = "data.npz", num_classes: int | None = None) -> Dataset:
    """A NumPy archive with x_train, y_train, x_test, y_test and, where it has clients, client_train [N].

    Args:
      data_dir: its folder, or the file itself.
    """
    root = files.folders(data_dir)[0]
    path = root if root.is_file() else root / file
    try:
        with np.load(path, allow_pickle=False) as archive:
            held = {key: archive[key] for key in archive.files}
    except Exception as error:  # a damaged zip can raise nearly anything
        raise UserError(f"{path}: not a readable .npz file of arrays ({error}).") from error
    absent = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in held]
    if absent:
        raise UserError(f"{path}: {', '.join(absent)} missing; it holds {', '.join(held) or 'nothing'}.")
    return from_arrays(
        held["x_train"],
        held["y_train"],
        held["x_test"],
        held["y_test"],
        name="npz",
        num_classes=num_classes,
        clients=held.get("client_train"),
    )
