"""Where packed caches are: in the user's cache directory, in a folder that was named, or beside the originals."""

import hashlib
import json
import os
import pathlib
import re
import tempfile

from fedwin.errors import UserError


def cache_dir() -> pathlib.Path:
    """Returns $FEDWIN_CACHE_DIR, else $XDG_CACHE_HOME/fedwin, else ~/.cache/fedwin."""
    if own := os.environ.get("FEDWIN_CACHE_DIR"):
        return pathlib.Path(own)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "fedwin"


def file_name(text: str) -> str:
    """Returns a choice such as `cifar100:label=coarse` as a part of a file name."""
    return re.sub(r"[^\w.+-]+", "_", text)


def origin(data_dir) -> str:
    """Returns the full path of the folder or archive that a cache is made from; '' where there is none."""
    return os.path.realpath(data_dir) if data_dir else ""


def folder_of(text: str, folder) -> pathlib.Path:
    """Returns where the cache of a choice is in a folder that was named."""
    return pathlib.Path(folder) / (file_name(text) + ".fedwin")


def user_folder(text: str, data_dir) -> pathlib.Path:
    """Returns where the cache of a choice is in the user's cache directory; every data_dir has its own."""
    key = hashlib.blake2b(f"{text}\0{origin(data_dir)}".encode(), digest_size=6).hexdigest()
    return cache_dir() / f"{file_name(text)[:100]}-{key}.fedwin"


def find(text: str, data_dir) -> pathlib.Path | None:
    """Returns the cache that `load` opens: in data_dir itself or, failing that, the user's; None without one."""
    if not data_dir:
        return None
    places = (folder_of(text, data_dir), user_folder(text, data_dir))
    return next((folder for folder in places if os.path.isdir(folder)), None)


def said(folder: pathlib.Path, key: str) -> str | None:
    """Returns the entry of a cache's meta under a key; None where there is no cache, or a damaged one."""
    try:
        return json.loads((folder / "meta.json").read_text())[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_choice(folder: pathlib.Path, text: str) -> None:
    """Raises UserError where a cache is of another choice: `train=a/b.csv` and `train=a_b.csv` have one folder."""
    other = said(folder, "choice")
    if other not in (None, text):
        raise UserError(f"{folder}: the cache of '{other}', not of '{text}'; move it or use another folder.")


def check_origin(folder: pathlib.Path, data_dir) -> None:
    """Raises UserError where a cache was made from other original files than those of data_dir."""
    other = said(folder, "origin")
    if other and data_dir and other != origin(data_dir):
        raise UserError(
            f"{folder}: the cache of the files in {other}, not in {data_dir}; use another --cache_dir, or --force."
        )


def check_writable(folder) -> None:
    """Raises UserError where no file can be written to a folder, or no such folder can be made; makes none."""
    try:
        path = pathlib.Path(folder).absolute()
        place = next(place for place in (path, *path.parents) if place.exists())
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be written ({error.strerror or error}); name another folder with --cache_dir or "
            f"$FEDWIN_CACHE_DIR."
        ) from error
