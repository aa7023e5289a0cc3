"""Published splits in files: Hsu et al.'s CSV files and the FedSAM JSON files.

CSV: columns `user_id,image_id,class`,
https://github.com/google-research/google-research/tree/master/federated_vision_datasets. JSON: LEAF keys `users`,
`num_samples`, `user_data`, with images `img_<row>_label_<class>.png`, https://github.com/debcaldarola/fedsam. Both
count rows in the order of the original archive.
"""

import re
from collections.abc import Iterator

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.formats import files, leaf
from fedwin.data.partitions.pack import labels_of
from fedwin.errors import UserError

NAME = re.compile(r"img_(\d+)_label_(\d+)(\.\w+)?$")


@PARTITIONS.register("csv")
def csv(dataset: Dataset, num_clients: int | None, seed: int, *, path: str) -> Partition:
    """Reads a published split from a file, whose users are the `ids` of the Partition.

    Args:
      num_clients: None, or the number of clients in the file.
      path: .json, or .csv with user_id, image_id (an example's position, from 0) and optionally class; .gz, .xz, .bz2.

    Raises:
      UserError: unreadable file, a row that is out of range or assigned twice, or a class that differs from the data
        set's.

    Example:
      >>> import pathlib, tempfile
      >>> import numpy as np
      >>> from fedwin import data
      >>> dataset = data.from_arrays(np.zeros([4, 2]), [0, 1, 1, 0], np.zeros([2, 2]), [0, 1])
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder) / "split.csv"
      ...     _ = path.write_text("user_id,image_id,class\\n7,3,0\\n8,0,0\\n7,1,1\\n")
      ...     data.make_partition(dataset, f"csv:path={path}", None, seed=0).client(0).tolist()  # user 7
      [3, 1]
    """
    blob = files.read(path)
    count = len(dataset.train["y"])
    lists: dict[str, list[int]] = {}
    assigned = np.zeros(count, bool)
    for where, user, row, label in read_json(path) if blob.lstrip()[:1] == b"{" else read_csv(path, blob):
        if not 0 <= row < count:
            raise UserError(f"{path}, {where}: image {row}, but '{dataset.name}' has 0 to {count - 1}.")
        if label is not None and label != (own := labels_of(dataset, "csv")[row]):
            raise UserError(
                f"{path}, {where}: class {label}, but image {row} of '{dataset.name}' has class {own}; "
                f"the file belongs to another data set or order."
            )
        if assigned[row]:
            raise UserError(f"{path}, {where}: image {row} is assigned twice.")
        assigned[row] = True
        lists.setdefault(user, []).append(row)
    if not lists:
        raise UserError(f"{path}: it contains no example; give a line (CSV) or a name (JSON) for each.")
    # Numeric ids keep their numeric order; client k is user k in the published files.
    users = sorted(lists, key=lambda user: (not user.isdecimal(), int(user) if user.isdecimal() else 0, user))
    return Partition.from_lists([lists[user] for user in users], ids=np.array(users), report={"path": str(path)})


# (description of the place, user, row, class or None)
Record = tuple[str, str, int, int | None]


def read_csv(path, blob: bytes) -> Iterator[Record]:
    """Yields the lines of a CSV file, whose column `class` may be missing.

    Raises:
      UserError: not a CSV file, or a column or value is missing or not a number.
    """
    columns = ["user_id", "image_id"] + ["class"] * ("class" in files.columns_of(blob))
    for line, (user, image, *label) in files.csv_rows(path, blob, columns):
        try:
            yield f"line {line}", user, int(image), int(label[0]) if label and label[0] else None
        except ValueError as error:
            shown = " and class ".join(f"'{text}'" for text in (image, *label))
            raise UserError(f"{path}, line {line}: {shown} must be whole numbers.") from error


def read_json(path) -> Iterator[Record]:
    """Yields the images of a LEAF file.

    Raises:
      UserError: not a LEAF file, or a name without row and class.
    """
    for _, user, images, _ in leaf.read([path]):
        for name in images:
            match = NAME.search(str(name))
            if not match:
                raise UserError(f"{path}, client '{user}': '{name}' is not img_<row>_label_<class>.png.")
            yield f"client '{user}', {name}", user, int(match[1]), int(match[2])
