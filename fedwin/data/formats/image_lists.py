"""Lists of images in CSV files: columns `user_id,image_id,class` (training) and `image_id,class` (test)."""

import csv
import io

import numpy as np

from fedwin.errors import UserError


def content_of(blob: bytes) -> csv.DictReader:
    """Returns the records of a list."""
    return csv.DictReader(io.StringIO(blob.decode("utf-8-sig", "replace"), newline=""), strict=True)


def columns_of(blob: bytes) -> list[str]:
    """Returns the column names of a list."""
    try:
        return list(content_of(blob).fieldnames or ())
    except csv.Error:
        return []  # reading the list says what is wrong with it


def read_list(path, blob: bytes, user_column: str | None) -> tuple[list[str], list[str] | None, np.ndarray]:
    """Returns image ids, users (None without a column) and classes of a list; rows whose user is `NA` are skipped.

    Args:
      path: what to call the list in an error line.
      blob: its decoded content.
      user_column: the column that names the users, or None.

    Raises:
      UserError: a column or value is missing, or an image is listed twice.
    """
    reader = content_of(blob)
    images, users, classes = [], [], []
    seen = set()
    try:
        columns = {"image_id", "class"} | ({user_column} if user_column else set())
        absent = sorted(columns - set(reader.fieldnames or ()))
        if absent:
            raise UserError(
                f"{path}: column {', '.join(absent)} is missing; it has {', '.join(reader.fieldnames or ['none'])}."
            )
        for record in reader:
            if None in (record[column] for column in columns):
                raise UserError(f"{path}, line {reader.line_num}: it has fewer values than the {len(record)} columns.")
            if user_column and record[user_column] in ("NA", ""):
                continue
            classes.append(class_of(record["class"], f"{path}, line {reader.line_num}"))
            if record["image_id"] in seen:
                raise UserError(f"{path}, line {reader.line_num}: image '{record['image_id']}' is listed twice.")
            seen.add(record["image_id"])
            images.append(record["image_id"])
            users.append(record[user_column] if user_column else "")
    except csv.Error as error:
        raise UserError(
            f"{path}, line {reader.line_num + 1}: not a CSV file ({error}); is a quote left open?"
        ) from error
    if not images:
        raise UserError(f"{path}: it lists no image.")
    return images, users if user_column else None, np.array(classes, np.int32)


def class_of(text: str, where: str) -> int:
    """Returns a class given as `5` or, as tables with gaps are written, `5.0`."""
    try:
        number = float(text)
        if number == int(number) and 0 <= number < 1 << 31:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise UserError(f"{where}: class '{text}' is not a whole number >= 0.")
