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

from fedwin.data.dataset import Dataset, Partition
from fedwin.data.reader import ExampleSource, Images
from fedwin.errors import UserError

FORMAT = 2
CHUNK = 256
# A folder may be shared: whether a process lives can be told on its own machine alone.
HOST = re.sub(r"\W+", "_", platform.node()) or "host"


def folder_of(text: str, data_dir) -> pathlib.Path:
    """Returns where the cache of a choice such as `cifar100:label=coarse` lies in data_dir."""
    return pathlib.Path(data_dir) / (re.sub(r"[^\w.+-]+", "_", text) + ".fedwin")


def choice_of(folder: pathlib.Path) -> str | None:
    """Returns the choice that a cache is of; None where there is no cache, or a damaged one."""
    try:
        return json.loads((folder / "meta.json").read_text())["choice"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_choice(folder: pathlib.Path, text: str) -> None:
    """Raises UserError where a cache is of another choice: `train=a/b.csv` and `train=a_b.csv` have one folder."""
    if choice_of(folder) not in (None, text):
        raise UserError(
            f"{folder}: the cache of '{choice_of(folder)}', not of '{text}'; move it or use another folder."
        )


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
    """Writes one array, images a chunk at a time so that they never are in memory all at once."""
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


def write(dataset: Dataset, text: str, data_dir, progress=lambda rows: None) -> pathlib.Path:
    """Writes a data set's cache and returns its folder.

    Args:
      text: the choice that `load` is given, which names the cache.
      data_dir: where it goes.
      progress: called with the number of rows after each piece.

    Raises:
      UserError: the folder cannot be written, or holds the cache of another choice.
    """
    final = folder_of(text, data_dir)
    check_choice(final, text)
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
        meta = {
            "format": FORMAT,
            "choice": text,
            "features": {split: list(getattr(dataset, split)) for split in ("train", "test")},
            **{
                key: getattr(dataset, key)
                for key in ("name", "num_classes", "task", "mean", "std", "class_names", "domain_names", "accuracies")
            },
            "verified": dataset.verified,
        }
        (partial / "meta.json").write_text(json.dumps(meta, indent=1))
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
    except OSError as error:
        raise UserError(
            f"{final}: cannot be written ({error.strerror or error}); choose a folder with space that is yours."
        )
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
      text: the choice that it must be the cache of; any by default.

    Raises:
      UserError: not a complete cache of this format, or of another choice.
    """
    folder = pathlib.Path(folder)
    if text is not None:
        check_choice(folder, text)
    try:
        meta = json.loads((folder / "meta.json").read_text())
        if meta["format"] != FORMAT:
            raise UserError(f"{folder}: a cache of format {meta['format']}, not {FORMAT}; prepare it again.")
        sides = [
            {key: np.load(folder / f"{split}.{key}.npy", mmap_mode="r") for key in meta["features"][split]}
            for split in ("train", "test")
        ]
        optional = lambda key: None if meta[key] is None else tuple(meta[key])
        return Dataset(
            meta["name"],
            *sides,
            meta["num_classes"],
            task=meta["task"],
            mean=optional("mean"),
            std=optional("std"),
            natural=read_partition(folder, "natural"),
            class_names=tuple(meta["class_names"]),
            domain_names=tuple(meta["domain_names"]),
            verified=meta["verified"],
            test_natural=read_partition(folder, "test_natural"),
            accuracies={name: tuple(map(tuple, ids)) for name, ids in meta["accuracies"].items()},
        )
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{folder}: not a complete cache ({error}); remove it and prepare it again.")
