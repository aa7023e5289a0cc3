"""LEAF's JSON files, Caldas et al. 2018, https://github.com/TalwalkarLab/leaf.

The folders `train` and `test` contain files {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...],
"y": [...]}}}.
"""

import json
import pathlib
from collections.abc import Iterable, Iterator

from fedwin.data.formats import files
from fedwin.errors import UserError


def read(paths: Iterable[pathlib.Path]) -> Iterator[tuple[pathlib.Path, str, list, list]]:
    """Yields (file, user, x, y) of every user, file by file.

    Raises:
      UserError: not LEAF JSON, a user that occurs twice, or x and y of different lengths.
    """
    seen = set()
    for path in paths:
        with files.reading(path, "not a LEAF file with users and user_data"):
            content = json.loads(files.read(path))
            users, user_data = [str(user) for user in content["users"]], dict(content["user_data"])
        for user in users:
            if user in seen:
                raise UserError(f"{path}: client id '{user}' occurs twice.")
            seen.add(user)
            own = user_data.get(user)
            x, y = (own.get(key) if isinstance(own, dict) else None for key in ("x", "y"))
            if not (isinstance(x, list) and isinstance(y, list)):
                raise UserError(f"{path}, client '{user}': it has no x and y.")
            # num_samples is not compared: LEAF's own Shakespeare files over-count the test part.
            if len(x) != len(y):
                raise UserError(f"{path}, client '{user}': {len(x)} inputs for {len(y)} labels.")
            yield path, user, x, y


def find(data_dir, *patterns: str) -> tuple[pathlib.Path, pathlib.Path] | None:
    """Finds LEAF's folders (train, test) in data_dir or in subfolders that match the patterns, or returns None."""
    for folder in files.folders(data_dir, "leaf*", *patterns):
        for location in (folder, folder / "data"):
            if parts(location / "train") and parts(location / "test"):
                return location / "train", location / "test"
    return None


def parts(folder) -> list[pathlib.Path]:
    """Returns the JSON files of a folder, compressed or not, sorted by name."""
    return sorted(path for path in pathlib.Path(folder).glob("*.json*") if path.is_file())
