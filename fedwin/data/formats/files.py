"""Reads files that may be plain or compressed, in folders or in archives."""

import bz2
import fnmatch
import gzip
import hashlib
import io
import lzma
import pathlib
import struct
import tarfile
import zipfile
import zlib

from fedwin.data.formats import limits
from fedwin.errors import UserError

# Messages of libraries may quote the content of a file.
MAX_MESSAGE = 300
SUFFIXES = ("", ".gz", ".xz", ".bz2", ".lzma")
MAGIC = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\x00", lzma.open), (b"BZh", bz2.open))


# Raised for damaged, encrypted or unsupported archives, NotImplementedError as a RuntimeError.
ARCHIVE_ERRORS = (
    EOFError,
    OSError,
    LookupError,
    MemoryError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def read(path, announced=None) -> bytes:
    """Returns the decompressed content of a file.

    Args:
      path: the file.
      announced: function from the first bytes to the size that they announce; it bounds the decompressed size.

    Raises:
      UserError: the file is missing, unreadable or truncated, or expands beyond all bounds.
    """
    try:
        raw = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; check the path and --data_dir.") from error
    return decode(raw, path, announced)


def decode(raw: bytes, name, announced=None) -> bytes:
    """Decompresses gzip, xz, lzma or bzip2; returns other bytes unchanged.

    Args:
      raw: content of the file.
      name: its name, for error messages.
      announced: as for `read`.

    Raises:
      UserError: the compressed data is truncated or damaged, or expands beyond all bounds.
    """
    function = opener(raw[:6], name)
    if function is None:
        return raw
    try:
        with function(io.BytesIO(raw)) as stream:
            return limits.read(stream, len(raw), name, announced)
    except (EOFError, OSError, ValueError, MemoryError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{name}: the compressed file is truncated or damaged ({one_line(error)}); fetch it again."
        ) from error


def opener(head: bytes, name: str):
    """Returns the function that opens a compressed stream with these first bytes; None if it is not compressed."""
    for magic, function in MAGIC:
        if head.startswith(magic):
            return function
    return lzma.open if str(name).endswith(".lzma") else None


def content(entry, announced=None) -> bytes:
    """Returns the decompressed bytes of an entry of `entries`; `announced` as for `read`."""
    return entry if isinstance(entry, bytes) else read(entry, announced)


def entries(location, wanted=lambda name: True, announced=None) -> dict[str, "pathlib.Path | bytes"]:
    """Returns the files of a folder (not of its subfolders) or of an archive (anywhere in it).

    Args:
      location: the folder or archive.
      wanted: whether to include a file, by its plain name; other files of an archive are not decompressed.
      announced: as for `read`.

    Returns:
      plain name -> path (folder) or decompressed bytes (archive).
    """
    location = pathlib.Path(location)
    if not location.is_dir():
        blobs = members(location, lambda name: wanted(plain(name)), announced)
        return {plain(name): decode(blob, name, announced) for name, blob in blobs.items()}
    # Longest names first, so that `a` replaces `a.gz`.
    paths = sorted((child for child in children(location) if child.is_file()), key=lambda child: -len(child.name))
    return {plain(path.name): path for path in paths if wanted(plain(path.name))}


def members(path, wanted=lambda name: True, announced=None) -> dict[str, bytes]:
    """Reads files of a tar (however compressed) or zip archive.

    Args:
      path: the archive.
      wanted: whether to read a member, by its name; others are not even decompressed if the format allows it.
      announced: as for `read`, for members that are not compressed themselves.

    Returns:
      name -> bytes.

    Raises:
      UserError: not an archive, or truncated, or it expands beyond all bounds.
    """
    try:
        stored = pathlib.Path(path).stat().st_size
        if zipfile.is_zipfile(path):
            return _zip_members(path, stored, wanted, announced)
        with tarfile.open(path) as archive:
            result = {}
            for entry in archive:
                # Members before it are decompressed, too.
                limits.check(entry.offset_data + max(entry.size, 0), stored, path)
                if entry.isfile() and wanted(entry.name) and (stream := archive.extractfile(entry)):
                    result[entry.name] = stream.read()
            return result
    except ARCHIVE_ERRORS as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a readable tar or zip archive ({one_line(error)}); fetch it again.") from error


def _zip_members(path, stored: int, wanted, announced) -> dict[str, bytes]:
    """Reads files of a zip archive of `stored` bytes; other arguments as for `members`."""
    result = {}
    with zipfile.ZipFile(path) as archive:
        chosen = [info for info in archive.infolist() if not info.filename.endswith("/") and wanted(info.filename)]
        total = 0
        for info in chosen:
            # A nested compressed file announces nothing in its first bytes.
            function = None if plain(info.filename) != info.filename.rsplit("/", 1)[-1] else announced
            with archive.open(info) as stream:
                blob = limits.read(stream, stored, path, function)
            total += len(blob)
            limits.check(total, stored, path)
            result[info.filename] = blob
    return result


def locate(folder, name: str) -> pathlib.Path | None:
    """Returns the path `folder/name`, possibly with a compression suffix; None if there is none."""
    for suffix in SUFFIXES:
        path = pathlib.Path(folder) / (name + suffix)
        if path.is_file():
            return path
    return None


def folders(data_dir, *patterns: str) -> list[pathlib.Path]:
    """Returns data_dir and its subfolders to depth two whose names match, nearest first.

    So a loader finds its files whether data_dir is their folder or a parent of it.

    Args:
      data_dir: the folder, or a file such as an archive.
      *patterns: lower-case patterns of names, as for fnmatch.

    Raises:
      UserError: data_dir is not given, does not exist or can't be listed.
    """
    if data_dir is None or str(data_dir) == "":
        raise UserError("this data set is read from files; set --data_dir=FOLDER.")
    root = pathlib.Path(data_dir)
    matches = lambda name: any(fnmatch.fnmatch(name.lower(), pattern) for pattern in patterns)
    try:
        if not root.exists():
            raise UserError(f"{root}: no such folder; check --data_dir.")
        result, level = [root], [root]
        for _ in range(2):
            listed = [child for folder in level if folder.is_dir() for child in children(folder)]
            level = [child for child in listed if matches(child.name) and child.is_dir()]
            result += level
    except OSError as error:
        raise UserError(f"{root}: cannot be listed ({error.strerror or error}); check --data_dir.") from error
    return result


def children(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the entries of a folder, sorted; raises UserError if it can't be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: cannot be listed ({error.strerror or error}); check --data_dir.") from error


class Missing(UserError):
    """The files of a data set were not found; they may be downloaded."""


def missing(dataset: str, data_dir, wanted: str, source: str = "") -> Missing:
    """Builds the error for files that were not found.

    Args:
      dataset: name of the data set.
      data_dir: the folder that was searched.
      wanted: description of the files.
      source: URL for a download, or ''.

    Returns:
      The Missing error.
    """
    hint = f" Fetch it from {source}." if source else ""
    return Missing(f"{dataset}: found no {wanted} in or under {data_dir}.{hint}")


def file_digest(content, kind: str = "md5") -> str:
    """Returns the hexadecimal checksum of bytes or of a file, without decompressing it.

    Args:
      content: bytes, or path of the file.
      kind: 'md5', 'sha256' or another name known to hashlib.
    """
    if isinstance(content, bytes):
        return hashlib.new(kind, content).hexdigest()
    with open(content, "rb") as stream:
        return hashlib.file_digest(stream, kind).hexdigest()


def plain(name: str) -> str:
    """Returns a file name without folders and compression suffix."""
    name = name.rsplit("/", 1)[-1]
    for suffix in SUFFIXES[1:]:
        name = name.removesuffix(suffix)
    return name


def one_line(error: Exception) -> str:
    """Returns the message of an error as one line of about MAX_MESSAGE characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE // 2]}...{text[-MAX_MESSAGE // 2 :]}"
