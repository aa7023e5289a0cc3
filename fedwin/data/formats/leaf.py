"""LEAF's JSON files, Caldas et al. 2018, https://github.com/TalwalkarLab/leaf.

The folders `train` and `test` contain files {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...],
"y": [...]}}}.
"""

import json
import pathlib

from fedwin.data.formats import files
from fedwin.errors import UserError


def read(folder):
    """Yields (file, user, x, y) of every user, file by file.

    Args:
      folder: folder of the files.

    Raises:
      UserError: not LEAF JSON, a user that occurs twice, or x and y of different lengths.
    """
    seen = set()
    for path in parts(folder):
        try:
            content = json.loads(files.read(path))
            users, user_data = [str(user) for user in content["users"]], content["user_data"]
        except (ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{path}: not a LEAF file with users and user_data ({files.one_line(error)}).") from error
        for user in users:
            if user in seen:
                raise UserError(f"{path}: client id '{user}' occurs twice.")
            seen.add(user)
            try:
                x, y = user_data[user]["x"], user_data[user]["y"]
            except (KeyError, TypeError):
                x = y = None
            if not (isinstance(x, list) and isinstance(y, list)):
                raise UserError(f"{path}, client '{user}': it has no x and y.")
            # num_samples is not compared: LEAF's own Shakespeare files over-count the test part.
            if len(x) != len(y):
                raise UserError(f"{path}, client '{user}': {len(x)} inputs for {len(y)} labels.")
            yield path, user, x, y


def find(data_dir, *patterns: str) -> tuple[pathlib.Path, pathlib.Path] | None:
    """Finds LEAF's folders `train` and `test`.

    Args:
      data_dir: the folder to search.
      *patterns: patterns of folder names, as in files.folders.

    Returns:
      (train folder, test folder), or None.
    """
    for folder in files.folders(data_dir, "leaf*", *patterns):
        for location in (folder, folder / "data"):
            if parts(location / "train") and parts(location / "test"):
                return location / "train", location / "test"
    return None


def parts(folder) -> list[pathlib.Path]:
    """Returns the JSON files of a folder, compressed or not, sorted by name."""
    return sorted(path for path in pathlib.Path(folder).glob("*.json*") if path.is_file())
