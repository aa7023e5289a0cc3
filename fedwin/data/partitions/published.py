"""Published splits in files: Hsu et al.'s CSV files and the FedSAM JSON files.

CSV: columns `user_id,image_id,class`,
https://github.com/google-research/google-research/tree/master/federated_vision_datasets. JSON: LEAF keys `users`,
`num_samples`, `user_data`, with images `img_<row>_label_<class>.png`, https://github.com/debcaldarola/fedsam. Both
count rows in the order of the original archive.
"""

import csv as csv_format
import io
import json
import re

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.formats import files
from fedwin.data.partitions.pack import finish, labels_of
from fedwin.errors import UserError

NAME = re.compile(r"img_(\d+)_label_(\d+)(\.\w+)?$")


@PARTITIONS.register("csv")
def csv(dataset: Dataset, num_clients: int | None, seed: int, *, path: str) -> Partition:
    """Reads a published split from a file.

    Args:
      num_clients: None, or the number of clients in the file.
      path: a .csv or .json file, possibly compressed (.gz, .xz, .bz2).

    Returns:
      The Partition, with the file's users as `ids`.

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
    text = files.read(path).decode("utf-8-sig", "replace")
    labels = labels_of(dataset, "csv")
    lists: dict[str, list[int]] = {}
    assigned = np.zeros(len(labels), bool)
    records = read_json(path, text) if text.lstrip()[:1] == "{" else read_csv(path, text)
    for where, user, row, label in records:
        if not 0 <= row < len(labels):
            raise UserError(f"{path}, {where}: image {row}, but '{dataset.name}' has 0 to {len(labels) - 1}.")
        if label is not None and label != labels[row]:
            raise UserError(
                f"{path}, {where}: class {label}, but image {row} of '{dataset.name}' has class {labels[row]}; "
                f"the file belongs to another data set or order."
            )
        if assigned[row]:
            raise UserError(f"{path}, {where}: image {row} is assigned twice.")
        assigned[row] = True
        lists.setdefault(user, []).append(row)
    if not lists:
        raise UserError(f"{path}: it contains no example; give a line (CSV) or a name (JSON) for each.")
    if num_clients not in (None, len(lists)):
        raise UserError(f"{path} has {len(lists)} clients, not {num_clients}; set --num_clients={len(lists)}.")
    # Numeric ids keep their numeric order; client k is user k in the published files.
    users = sorted(lists, key=lambda user: (not user.isdigit(), int(user) if user.isdigit() else 0, user))
    part = Partition.from_lists([np.array(lists[user]) for user in users], ids=np.array(users))
    return finish(dataset, part, "csv", path=str(path))


def read_csv(path, text: str):
    """Yields (description, user, row, class) of each line; class is None if there is no such column.

    Args:
      path: the file, for error messages.
      text: its content.

    Raises:
      UserError: not a CSV file, or a column or value is missing or not a number.
    """
    reader = csv_format.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        missing = {"user_id", "image_id"} - set(reader.fieldnames or ())
        if missing:
            raise UserError(
                f"{path}: column {' and '.join(sorted(missing))} is missing; it needs user_id,image_id,class."
            )
        for record in reader:
            where = f"line {reader.line_num}"
            user, image, label = (record.get(column) for column in ("user_id", "image_id", "class"))
            if user is None or image is None or ("class" in record and label is None):
                raise UserError(f"{path}, {where}: it has fewer values than the {len(record)} columns.")
            try:
                yield where, user, int(image), int(label) if label else None
            except ValueError as error:
                raise UserError(f"{path}, {where}: '{image}' and class '{label}' are not whole numbers.") from error
    except csv_format.Error as error:
        raise UserError(
            f"{path}, line {reader.line_num + 1}: not a CSV file ({error}); is a quote left open?"
        ) from error


def read_json(path, text: str):
    """Yields (description, user, row, class) of each image.

    Args:
      path: the file, for error messages.
      text: its content.

    Raises:
      UserError: not a LEAF file, or a name without row and class.
    """
    try:
        content = json.loads(text)
        users, user_data = [str(user) for user in content["users"]], content["user_data"]
        if len(set(users)) != len(users):
            raise UserError(f"{path}: client '{next(u for u in users if users.count(u) > 1)}' is listed twice.")
        names = [(user, list(user_data[user]["x"])) for user in users]
    except (KeyError, TypeError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a LEAF file with users and user_data ({files.one_line(error)}).") from error
    for user, images in names:
        for name in images:
            match = NAME.search(str(name))
            if not match:
                raise UserError(f"{path}, client '{user}': '{name}' is not img_<row>_label_<class>.png.")
            yield f"client '{user}', {name}", user, int(match[1]), int(match[2])
