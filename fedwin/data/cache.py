"""Packed caches of data sets: their location, writing them, and opening them by memory map.

A cache is a folder `<name>.fedwin` with one .npy file per feature and partition, and `meta.json` with the other fields
and the checksums of the arrays. It is written under a temporary name and renamed when it is complete, so that no
incomplete cache has the final name.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable

import numpy as np

from fedwin.data import integrity
from fedwin.data.dataset import DATASETS, Dataset, Partition
from fedwin.data.example_source import ExampleSource, Images
from fedwin.errors import UserError
from fedwin.files import make_private, parse_json, unsafe

FORMAT = 1
# Images are written in chunks of this many.
CHUNK = 256
# Incomplete caches of this age, in seconds, are removed.
ABANDONED = 24 * 3600
NO_DIRECTORY = "no home directory is known; set HOME, or FEDWIN_CACHE_DIR to a folder for caches."
# Called with the number of rows after each chunk.
Progress = Callable[[int], object]
FIELDS = ("name", "num_classes", "task", "mean", "std", "class_names", "domain_names", "accuracies", "verified")


def cache_directory() -> pathlib.Path | None:
    """Returns $FEDWIN_CACHE_DIR, $XDG_CACHE_HOME/fedwin or ~/.cache/fedwin, which need not exist.

    None if the user has no home directory (no HOME, and no passwd entry).
    """
    own, shared = os.environ.get("FEDWIN_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    path = os.path.expanduser(own or os.path.join(shared or "~/.cache", "fedwin"))
    return None if path.startswith("~") else pathlib.Path(path)


def file_name(text: str) -> str:
    """Converts a choice such as `cifar100:label=coarse` to a part of a file name."""
    return re.sub(r"[^\w.+-]+", "_", text)


def origin(data_dir) -> str:
    """Full path of the original files' folder or archive; '' if none is given."""
    return os.path.realpath(data_dir) if data_dir else ""


def path_in(text: str, folder) -> pathlib.Path:
    """Path of a choice's cache in a given folder."""
    return pathlib.Path(folder) / (file_name(text) + ".fedwin")


def user_path(text: str, data_dir) -> pathlib.Path:
    """Path of a choice's cache in the user's cache directory (UserError without one), by data_dir and a user's code."""
    module = DATASETS[DATASETS.check(text).name].__module__
    file = None if module.startswith("fedwin.") else getattr(sys.modules.get(module), "__file__", None)
    code = pathlib.Path(file).read_text("utf-8", "replace") if file else ""
    key = hashlib.blake2b(f"{text}\0{origin(data_dir)}{code}".encode(), digest_size=6).hexdigest()
    if (folder := cache_directory()) is None:
        raise UserError(NO_DIRECTORY)
    return folder / f"{file_name(text)[:100]}-{key}.fedwin"


def find(text: str, data_dir) -> pathlib.Path | None:
    """Finds the cache of a choice that `load` opens, in data_dir or else, checked, in the user's cache directory."""
    if not data_dir or os.path.isdir(named := path_in(text, data_dir)):
        return named if data_dir else None
    if cache_directory() is None or not os.path.isdir(folder := user_path(text, data_dir)):
        return None
    check_private(folder)
    return folder


def check_private(folder: pathlib.Path) -> None:
    """Raises UserError if others could write to a folder in the user's cache directory, or to files in it."""
    for path in (folder, *folder.glob("*")):
        if (reason := unsafe(path)) is not None:
            raise UserError(f"the cache of prepared data is refused: {reason}.")


def read(folder, text: str | None = None) -> Dataset:
    """Opens a cache, which must belong to the choice `text` if it is given, with memory maps as features.

    Raises:
      integrity.DamagedCache: a file is missing or has changed, or the cache has another format.
      UserError: the cache belongs to another choice.
    """
    folder = pathlib.Path(folder)
    try:
        meta = parse_json((folder / "meta.json").read_text())
        if meta["format"] != FORMAT:
            raise integrity.DamagedCache(f"{folder}: the cache has format {meta['format']}, not {FORMAT}.")
        for name, expected in meta["arrays"].items():
            integrity.check_file(folder / name, expected, whole=False)
        if text is not None:
            check_choice(folder, text)
        fields: dict = {key: tuple(meta[key]) if isinstance(meta[key], list) else meta[key] for key in FIELDS}
        fields["accuracies"] = {name: tuple(map(tuple, ids)) for name, ids in meta["accuracies"].items()}
        train, test = (
            {key: np.load(folder / f"{split}.{key}.npy", mmap_mode="r") for key in meta["features"][split]}
            for split in ("train", "test")
        )
        natural, test_natural = (read_partition(folder, name) for name in ("natural", "test_natural"))
        return Dataset(train=train, test=test, natural=natural, test_natural=test_natural, **fields)
    except UserError:
        raise
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise integrity.DamagedCache(
            f"{folder}: not a complete cache ({error}); remove it and prepare it again."
        ) from error


def read_partition(folder: pathlib.Path, name: str) -> Partition | None:
    """Reads a partition of a cache: offsets and ids into memory, the order of examples as a memory map."""
    if not (folder / f"{name}.order.npy").is_file():
        return None
    optional = lambda key: np.load(path) if (path := folder / f"{name}.{key}.npy").is_file() else None
    order = np.load(folder / f"{name}.order.npy", mmap_mode="r")
    return Partition(order, np.load(folder / f"{name}.offset.npy"), {}, optional("ids"), optional("domain"))


def write_to(
    final: pathlib.Path, dataset: Dataset, text: str, progress: Progress = lambda rows: None, data_dir=None, force=True
) -> pathlib.Path:
    """Writes the cache of a data set to a folder.

    Args:
      progress: called with the number of rows after each chunk.
      data_dir: folder of the original files, recorded in the cache.
      force: whether a cache that is there, perhaps since the start, is replaced and not kept.

    Raises:
      UserError: the path can't be written, or is the cache of another choice.
    """
    check_choice(final, text)
    partial = final.with_name(f".{final.name}.{uuid.uuid4().hex}.partial")
    try:
        for abandoned in final.parent.glob(f".{final.name}.*.partial"):  # left by a process that was killed
            if time.time() - abandoned.stat().st_mtime > ABANDONED:
                shutil.rmtree(abandoned, ignore_errors=True)
        make_private(partial)
        for split, features in (("train", dataset.train), ("test", dataset.test)):
            for key, value in features.items():
                write_feature(partial / f"{split}.{key}.npy", value, progress)
        for name, part in (("natural", dataset.natural), ("test_natural", dataset.test_natural)):
            for key in ("order", "offset", "ids", "domain") if part is not None else ():
                if (value := getattr(part, key)) is not None:
                    np.save(partial / f"{name}.{key}.npy", np.asarray(value))
        meta = {
            "format": FORMAT,
            "choice": text,
            "origin": origin(data_dir),
            "features": {"train": list(dataset.train), "test": list(dataset.test)},
            **{key: getattr(dataset, key) for key in FIELDS},
            "arrays": integrity.array_checksums(partial),
        }
        (partial / "meta.json").write_text(json.dumps(meta, indent=1, default=lambda value: value.tolist()))
        for path in partial.iterdir():
            path.chmod(path.stat().st_mode & ~0o022)  # whatever the umask
        if force and final.exists():
            shutil.rmtree(final)
        try:
            partial.rename(final)
        except OSError:
            if force or not final.is_dir():  # otherwise another process has just written the same
                raise
    except OSError as error:
        raise UserError(
            f"{final}: cannot be written ({error.strerror or error}); choose a writable folder with enough space."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


def write_feature(path: pathlib.Path, value: np.ndarray | Images, progress: Progress) -> None:
    """Writes an array, memory map or Images [N, ...]; images in chunks, not through a map, which a full disk breaks."""
    if not isinstance(value, Images):
        np.save(path, np.ascontiguousarray(value))
        progress(len(value))
        return
    header = {"descr": value.dtype.str, "fortran_order": False, "shape": value.shape}
    chunks = np.split(np.arange(len(value)), range(CHUNK, len(value), CHUNK))
    with open(path, "wb") as target, ExampleSource({"value": value}) as source:
        np.lib.format.write_array_header_1_0(target, header)
        for rows, chunk in zip(chunks, source.prefetch(chunks)):
            target.write(np.ascontiguousarray(chunk["value"]).data)
            progress(len(rows))


def read_meta_entry(folder: pathlib.Path, key: str) -> str | None:
    """Returns one entry of a cache's meta.json; None if there is no cache, or a damaged one."""
    try:
        return parse_json((folder / "meta.json").read_text())[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_choice(folder: pathlib.Path, text: str) -> None:
    """Raises UserError if a cache belongs to another choice: `train=a/b.csv` and `train=a_b.csv` share a path."""
    other = read_meta_entry(folder, "choice")
    if other not in (None, text):
        raise UserError(f"{folder}: the cache of '{other}', not of '{text}'; move it or use another folder.")


def check_origin(folder: pathlib.Path, data_dir) -> None:
    """Raises UserError if an existing cache was made from other original files than those in data_dir."""
    other = read_meta_entry(folder, "origin")
    if other and data_dir and other != origin(data_dir):
        raise UserError(
            f"{folder}: the cache of the files in {other}, not in {data_dir}; use another --cache_dir, or --force."
        )


def check_writable(folder) -> None:
    """Raises UserError if files can't be written to a folder that exists or could be created; creates nothing."""
    try:
        path = pathlib.Path(folder).absolute()
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be written ({error.strerror or error}); choose another folder with --cache_dir or "
            f"$FEDWIN_CACHE_DIR."
        ) from error
