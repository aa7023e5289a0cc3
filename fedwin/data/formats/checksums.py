"""Compares original files with their published checksums."""

import pathlib
import warnings
from collections.abc import Iterable

from fedwin.data.dataset import DATASETS
from fedwin.data.formats import files


def published_checksums(dataset: str) -> dict[str, tuple[str, str]]:
    """Returns the published checksums of a data set: file -> (kind, checksum), as registered by its loader."""
    return dict(DATASETS.entries[dataset].facts["checksums"]) if dataset in DATASETS else {}


def matches(dataset: str, name: str, content: pathlib.Path | bytes | None) -> bool:
    """Returns whether a file, given by its bytes or path, has its published checksum; None has none."""
    kind, checksum = published_checksums(dataset).get(name, ("", ""))
    return bool(kind) and content is not None and files.file_digest(content, kind) == checksum


def verify(dataset: str, items: Iterable[tuple[str, pathlib.Path | None, pathlib.Path | bytes | None]]) -> bool:
    """Compares files with their published checksums; warns 'unverified' about files that differ.

    Args:
      items: for each file (name, path of the file as it is distributed or None, its decoded content or None).

    Returns:
      Whether all files have published checksums and agree with them.
    """
    unconfirmed = [
        str(name)
        for name, stored, decoded in items
        if not matches(dataset, pathlib.Path(name).name, stored)
        and not matches(dataset, files.plain(str(name)), decoded)
    ]
    published = {files.plain(name) for name in published_checksums(dataset)}
    if differing := [name for name in unconfirmed if files.plain(name) in published]:
        warnings.warn(
            f"{dataset}: unverified, the checksums of {', '.join(differing)} are not the original's.", stacklevel=4
        )
    return not unconfirmed


def verify_files(dataset: str, paths: list[pathlib.Path]) -> bool:
    """Compares files, possibly compressed, with the published checksums of their stored or decoded content."""
    decoded = lambda path: path if files.plain(path.name) == path.name else files.read(path)
    known = published_checksums(dataset)
    content = lambda path: decoded(path) if files.plain(path.name) in known else None
    return verify(dataset, [(str(path), path, content(path)) for path in dict.fromkeys(paths)])


def check_num_clients(dataset: str, where, num_clients: int) -> None:
    """Warns 'unverified' if files without published checksums have another number of clients than published."""
    expected = DATASETS.entries[dataset].facts["full"].clients
    if num_clients != expected:
        warnings.warn(
            f"{where}: unverified, {num_clients:,} clients, but the original {dataset} has {expected:,}.", stacklevel=4
        )
