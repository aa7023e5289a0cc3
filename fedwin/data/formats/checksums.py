"""The published checksums of original files, for downloads and for files that were put in place by hand."""

import pathlib
import warnings

from fedwin.data.dataset import DATASETS
from fedwin.data.formats import files


def published_checksums(dataset: str) -> dict[str, tuple[str, str]]:
    """Returns file -> (kind, checksum) of a data set, as its loader was registered with."""
    return dict(DATASETS.entries[dataset].facts["checksums"]) if dataset in DATASETS else {}


def published_checksum(dataset: str, name: str) -> tuple[str, str] | tuple[None, None]:
    """Returns (kind, checksum) of a file, (None, None) where none is published."""
    return published_checksums(dataset).get(name, (None, None))


def matches(dataset: str, name: str, content) -> bool:
    """Whether a file has its published checksum.

    Args:
      dataset: whose file.
      name: of the file.
      content: its bytes, or the file itself; None has no checksum.
    """
    kind, checksum = published_checksum(dataset, name)
    return kind is not None and content is not None and files.file_digest(content, kind) == checksum


def verify(dataset: str, items) -> bool:
    """Returns whether each file has its published checksum; where one is published and not met, warns 'unverified'.

    Args:
      items: (name, the file as it is distributed or None, its decoded content as a file, as bytes or None).
    """
    wrong = [
        name
        for name, stored, decoded in items
        if not matches(dataset, pathlib.Path(name).name, stored)
        and not matches(dataset, files.plain(str(name)), decoded)
    ]
    plain = {files.plain(name) for name in published_checksums(dataset)}
    doubtful = [str(name) for name in wrong if files.plain(str(name)) in plain]
    if doubtful:
        warnings.warn(
            f"{dataset}: unverified, the checksums of {', '.join(doubtful)} are not the original's.", stacklevel=4
        )
    return not wrong


def check_num_clients(dataset: str, where, found: int, original: int) -> None:
    """Warns 'unverified' where files without a published checksum hold another number of clients.

    Args:
      dataset: whose files.
      where: what to call them.
      found: their number of clients.
      original: the published number.
    """
    if found != original:
        warnings.warn(
            f"{where}: unverified, {found:,} clients, but the original {dataset} has {original:,}.", stacklevel=4
        )
