"""Image files in folders and archives, and CSV lists of images with class and user.

Training lists have the columns `user_id,image_id,class`, test lists `image_id,class`.
"""

import csv
import io
import os
import pathlib
import tarfile
from collections.abc import Mapping

import numpy as np

from fedwin.data.example_source import Member, Span
from fedwin.data.formats import files
from fedwin.errors import UserError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


def images_below(location) -> Mapping[str, str | Span | Member]:
    """Finds the image files in a folder or in a tar or zip archive, without decoding them.

    Members of an uncompressed tar are read in place; those of other archives are read into memory.

    Args:
      location: the folder or archive.

    Returns:
      relative name -> path, Span or Member.

    Raises:
      UserError: a folder that can't be listed, or not an archive.
    """
    location = pathlib.Path(location)
    if location.is_dir():
        paths = {}
        for folder, _, names in os.walk(location, onerror=_unlistable):
            for name in names:
                if name.lower().endswith(SUFFIXES):
                    path = os.path.join(folder, name)
                    paths[os.path.relpath(path, location).replace(os.sep, "/")] = path
        return paths
    wanted = lambda name: name.lower().endswith(SUFFIXES)
    try:
        with tarfile.open(location, "r:") as archive:
            return {
                entry.name: Span(str(location), entry.offset_data, entry.size)
                for entry in archive
                if entry.isfile() and wanted(entry.name)
            }
    except (tarfile.TarError, EOFError, OSError):
        members = files.members(location, wanted)
        return {name: Member(f"{location}/{name}", blob) for name, blob in members.items()}


def by_name(images, wanted: set[str]) -> dict[str, list[str]]:
    """Matches image ids of lists with image files.

    An id is the file's path below the folder or, if no path matches, its name, each with or without suffix.

    Args:
      images: (folder or archive, path in it) of the image files.
      wanted: the ids in the lists; nothing else is indexed.

    Returns:
      image id -> matching files.
    """
    paths: dict[str, list[str]] = {}
    bare: dict[str, list[str]] = {}
    for location, name in sorted(images):
        for table, text in ((paths, name), (bare, name.rsplit("/", 1)[-1])):
            for key in {text, text.rsplit(".", 1)[0]} & wanted:
                table.setdefault(key, []).append(os.path.join(location, name))
    return {**bare, **paths}


def read_list(path, blob: bytes, user_column: str | None) -> tuple[list[str], list[str] | None, np.ndarray]:
    """Reads a list of images; rows whose user is `NA` are skipped.

    Args:
      path: the list, for error messages.
      blob: its decompressed content.
      user_column: name of the column of users, or None.

    Returns:
      (image ids, users or None if there is no column, classes int32 [N]).

    Raises:
      UserError: a column or value is missing, or an image is listed twice.
    """
    reader = csv_reader(blob)
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


def columns_of(blob: bytes) -> list[str]:
    """Returns the column names of a list, given its content."""
    try:
        return list(csv_reader(blob).fieldnames or ())
    except csv.Error:
        return []  # reading the list will raise the error


def class_of(text: str, where: str) -> int:
    """Parses a class written as `5` or, as in tables exported with missing values, `5.0`."""
    try:
        number = float(text)
        if number == int(number) and 0 <= number < 1 << 31:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise UserError(f"{where}: class '{text}' is not a whole number >= 0.")


def csv_reader(blob: bytes) -> csv.DictReader:
    """Opens the records of a list, given its content."""
    return csv.DictReader(io.StringIO(blob.decode("utf-8-sig", "replace"), newline=""), strict=True)


def _unlistable(error: OSError) -> None:
    # os.walk would skip the folder, and its images would be reported as missing.
    raise UserError(f"{error.filename}: cannot be listed ({error.strerror}); check --data_dir.") from error
