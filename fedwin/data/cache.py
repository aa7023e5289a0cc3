"""Packed caches: a data set as plain arrays that are opened by memory map.

A cache is a folder `<name>.fedwin` with `meta.json` and one .npy file per feature and partition. It is written beside
its place and renamed when it is complete, so that a cache that exists is whole.
"""

import json
import os
import pathlib
import platform
import re
import shutil

import numpy as np

from fedwin.data import integrity
from fedwin.data.dataset import Dataset, Partition
from fedwin.data.places import check_choice, folder_of, origin
from fedwin.data.reader import ExampleSource, Images
from fedwin.errors import UserError

# Format 2 had no checksums.
FORMAT = 3
READABLE = (2, 3)
CHUNK = 256
# A folder may be shared: whether a process is alive is known on its own machine alone.
HOST = re.sub(r"\W+", "_", platform.node()) or "host"


def remove_abandoned(data_dir: pathlib.Path) -> None:
    """Removes what processes of this machine were writing here when they died."""
    for folder in data_dir.glob(f".*.fedwin.{HOST}.*.partial"):
        number = folder.name.split(".")[-2]
        if number.isdigit() and not alive(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def alive(process: int) -> bool:
    """Returns whether a process of that number exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # someone else's
        pass
    return True


def write_feature(path: pathlib.Path, value, progress) -> None:
    """Writes one array; images a chunk at a time, so that they are never in memory all at once.

    Args:
      path: the new file.
      value: an array, or Images.
      progress: called with the number of rows after each piece.
    """
    if not isinstance(value, Images):
        np.save(path, np.ascontiguousarray(value))
        progress(len(value))
        return
    target = np.lib.format.open_memmap(path, "w+", value.dtype, value.shape)
    pieces = np.split(np.arange(len(value)), range(CHUNK, len(value), CHUNK))
    with ExampleSource({"value": value}) as source:
        for rows, piece in zip(pieces, source.prefetch(pieces)):
            target[rows[0] : rows[-1] + 1] = piece["value"]
            progress(len(rows))
    target.flush()


def write_partition(folder: pathlib.Path, name: str, part: Partition | None) -> None:
    """Writes the arrays of a partition."""
    if part is not None:
        for key in ("order", "offset", "ids", "domain"):
            if (value := getattr(part, key)) is not None:
                np.save(folder / f"{name}.{key}.npy", np.asarray(value))


def meta_of(dataset: Dataset, text: str, data_dir, folder: pathlib.Path) -> dict:
    """Returns what is written beside the arrays of a folder.

    Args:
      dataset: what is written.
      text: the choice that it is of.
      data_dir: the originals that it was made from.
      folder: holds the arrays.
    """
    keys = ("name", "num_classes", "task", "mean", "std", "class_names", "domain_names", "accuracies", "verified")
    return {
        "format": FORMAT,
        "choice": text,
        "origin": origin(data_dir),
        "features": {split: list(getattr(dataset, split)) for split in ("train", "test")},
        **{key: getattr(dataset, key) for key in keys},
        "arrays": integrity.measured(folder),
    }


def write(dataset: Dataset, text: str, folder, progress=lambda rows: None, *, data_dir=None) -> pathlib.Path:
    """Writes a data set's cache into a folder under the name of its choice, and returns the cache.

    Args:
      dataset: what is written.
      text: the choice that `load` is given, which names the cache.
      folder: where it goes.
      progress: called with the number of rows after each piece.
      data_dir: the originals that it was made from, for its meta.

    Raises:
      UserError: the folder cannot be written, or holds the cache of another choice.
    """
    final = folder_of(text, folder)
    check_choice(final, text)
    return write_to(final, dataset, text, progress, data_dir)


def write_to(
    final: pathlib.Path, dataset: Dataset, text: str, progress=lambda rows: None, data_dir=None
) -> pathlib.Path:
    """Writes a data set's cache as the folder `final`, in place of whatever is there; arguments as for `write`."""
    partial = final.with_name(f".{final.name}.{HOST}.{os.getpid()}.partial")
    remove_abandoned(final.parent)
    try:
        shutil.rmtree(partial, ignore_errors=True)  # a dead process's of the same number
        partial.mkdir(parents=True)
        for split, features in (("train", dataset.train), ("test", dataset.test)):
            for key, value in features.items():
                write_feature(partial / f"{split}.{key}.npy", value, progress)
        write_partition(partial, "natural", dataset.natural)
        write_partition(partial, "test_natural", dataset.test_natural)
        (partial / "meta.json").write_text(json.dumps(meta_of(dataset, text, data_dir, partial), indent=1))
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
    except OSError as error:
        raise UserError(
            f"{final}: cannot be written ({error.strerror or error}); choose a folder with space that is yours."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


def read_partition(folder: pathlib.Path, name: str) -> Partition | None:
    """Reads the arrays of a partition; offsets and ids in memory, the order mapped."""
    if not (folder / f"{name}.order.npy").is_file():
        return None
    optional = lambda key: np.load(path) if (path := folder / f"{name}.{key}.npy").is_file() else None
    order = np.load(folder / f"{name}.order.npy", mmap_mode="r")
    return Partition(order, np.load(folder / f"{name}.offset.npy"), {}, optional("ids"), optional("domain"))


def read(folder, text: str | None = None) -> Dataset:
    """Opens a cache by memory map: nothing is read before it is used.

    Args:
      folder: the cache.
      text: the choice that it must be the cache of; any by default.

    Returns:
      The data set, its features as memory maps. `verified` is False also for a cache without checksums.

    Raises:
      integrity.Damaged: a file is missing, or is not what was written.
      UserError: a cache of a format that is not known, or of another choice.
    """
    folder = pathlib.Path(folder)
    try:
        meta = json.loads((folder / "meta.json").read_text())
        if meta["format"] not in READABLE:
            raise UserError(f"{folder}: a cache of format {meta['format']}, not {FORMAT}; prepare it again.")
        integrity.check_opened(folder, meta.get("arrays", {}))
        if text is not None:
            check_choice(folder, text)
        train, test = [
            {key: np.load(folder / f"{split}.{key}.npy", mmap_mode="r") for key in meta["features"][split]}
            for split in ("train", "test")
        ]
        optional = lambda key: None if meta[key] is None else tuple(meta[key])
        return Dataset(
            meta["name"],
            train,
            test,
            meta["num_classes"],
            task=meta["task"],
            mean=optional("mean"),
            std=optional("std"),
            natural=read_partition(folder, "natural"),
            class_names=tuple(meta["class_names"]),
            domain_names=tuple(meta["domain_names"]),
            verified=meta["verified"] and "arrays" in meta,
            test_natural=read_partition(folder, "test_natural"),
            accuracies={name: (tuple(left), tuple(never)) for name, (left, never) in meta["accuracies"].items()},
        )
    except UserError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise integrity.Damaged(f"{folder}: not a complete cache ({error}); remove it and prepare it again.") from error
