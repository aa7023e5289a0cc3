"""Image files in folders and archives, and CSV lists of images with class and user.

Training lists have the columns `user_id,image_id,class`, test lists `image_id,class`.
"""

import math
import os
import pathlib
import tarfile
import warnings

import numpy as np

from fedwin.data.checks import as_labels
from fedwin.data.example_source import Item, Member
from fedwin.data.formats import files
from fedwin.errors import UserError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")


def images_below(location) -> dict[str, Item]:
    """Finds the image files in a folder or in a tar or zip archive, without decoding them: relative name -> image.

    Members of an uncompressed tar are read in place; those of other archives are read into memory.

    Raises:
      UserError: not an archive.
      OSError: a folder can't be listed.
    """
    location = pathlib.Path(location)
    # Not the files `._NAME` that macOS adds to archives.
    wanted = lambda name: name.lower().endswith(SUFFIXES) and not name.rsplit("/", 1)[-1].startswith("._")
    if location.is_dir():
        walked = os.walk(location, onerror=_raise)
        paths = [os.path.join(folder, name) for folder, _, names in walked for name in names if wanted(name)]
        return {os.path.relpath(path, location).replace(os.sep, "/"): path for path in paths}
    try:
        with tarfile.open(location, "r:") as archive:
            members = [entry for entry in archive if entry.isfile() and wanted(entry.name)]
        found: dict[str, Item] = {e.name: Member(str(location), None, e.offset_data, e.size) for e in members}
    except (tarfile.TarError, EOFError, OSError):
        found = {name: Member(f"{location}/{name}", blob) for name, blob in files.members(location, wanted).items()}
    return {name.removeprefix("./"): image for name, image in found.items()}  # as `tar -C dir -cf x.tar .` names them


def by_name(location, wanted: set[str]) -> dict[str, dict[str, Item]]:
    """Returns image id -> path -> image of the files in a folder or archive that match the `wanted` ids.

    An id is the file's path below the folder or, if no path matches, its name, each with or without suffix.
    """
    paths: dict[str, dict[str, Item]] = {}
    bare: dict[str, dict[str, Item]] = {}
    for name, image in sorted(images_below(location).items()):
        for table, text in ((paths, name), (bare, name.rsplit("/", 1)[-1])):
            for key in {text, text.rsplit(".", 1)[0]} & wanted:
                table.setdefault(key, {})[os.path.join(location, name)] = image
    return {**bare, **paths}


def read_list(
    path, blob: bytes, user_column: str | None, task: str | None = None
) -> tuple[list[str], list[str] | None, np.ndarray]:
    """Reads a list of images; those whose user is `NA` or '' are left out, with a warning. `path` is the list.

    Returns:
      (image ids, users or None without a user_column, classes int32 [N], or numbers float32 [N] for regression).

    Raises:
      UserError: a column or value is missing, or an image is listed twice.
    """
    users, classes, unowned = [], {}, 0
    columns = ["image_id", "class"] + ([user_column] if user_column else [])
    for line, (image, label, *user) in files.csv_rows(path, blob, columns):
        if user and user[0] in ("NA", ""):
            unowned += 1
            continue
        if image in classes:
            raise UserError(f"{path}, line {line}: image '{image}' is listed twice.")
        classes[image] = class_of(label, f"{path}, line {line}", task)
        users += user
    if not classes:
        raise UserError(f"{path}: it lists no image.")
    if unowned:
        warnings.warn(f"{path}: {unowned:,} images are left out, as their {user_column} is 'NA' or ''.", stacklevel=4)
    return list(classes), users if user_column else None, as_labels(list(classes.values()), str(path), task)


def class_of(text: str, where: str, task: str | None = None) -> float:
    """Parses a class written as `5` or, as in tables exported with missing values, `5.0`; any number for regression."""
    wanted = "a finite number" if task == "regression" else "a whole number >= 0"
    try:
        number = float(text)
        if task == "regression" and math.isfinite(number):
            return number
        if number == int(number) and 0 <= number < 1 << 31:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise UserError(f"{where}: class '{text}' is not {wanted}.")


def _raise(error: OSError) -> None:
    # os.walk would skip the folder, and its images would be reported as missing.
    raise error
