"""Files as people have them: plain or compressed, in folders or in archives."""

import bz2
import fnmatch
import gzip
import hashlib
import io
import lzma
import pathlib
import tarfile
import zipfile
import zlib

from fedwin.errors import UserError

SUFFIXES = ("", ".gz", ".xz", ".bz2", ".lzma")
MAGIC = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\x00", lzma.open), (b"BZh", bz2.open))


def one_line(error: Exception) -> str:
    """Returns the message of an error in one line; tarfile's has several."""
    return " ".join(str(error).split()) or type(error).__name__


def opener(head: bytes, name: str):
    """Returns the function that opens a stream with this beginning, or None where it is not compressed."""
    for magic, function in MAGIC:
        if head.startswith(magic):
            return function
    return lzma.open if str(name).endswith(".lzma") else None


def decode(raw: bytes, name) -> bytes:
    """Returns the bytes behind gzip, xz, lzma or bzip2, or the bytes themselves; raises UserError if cut short."""
    function = opener(raw[:6], name)
    if function is None:
        return raw
    try:
        with function(io.BytesIO(raw)) as stream:
            return stream.read()
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{name}: the compressed file is truncated or damaged ({error}); fetch it again.") from error


def read(path) -> bytes:
    """Returns the decoded content of a file; raises UserError where it is missing, unreadable or truncated."""
    try:
        raw = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; check the path and --data_dir.") from error
    return decode(raw, path)


def locate(folder, name: str) -> pathlib.Path | None:
    """Returns `folder/name` or the same with a compression suffix; None where there is none."""
    for suffix in SUFFIXES:
        path = pathlib.Path(folder) / (name + suffix)
        if path.is_file():
            return path
    return None


def folders(data_dir, *patterns: str) -> list[pathlib.Path]:
    """Returns data_dir and, below it to depth two, the folders whose names match, nearest first.

    So a loader finds its data whether it is given the folder itself or one of its parents.

    Args:
      data_dir: the folder, or a file such as an archive.
      patterns: of the names, as for fnmatch, in lower case.

    Raises:
      UserError: data_dir is not given, does not exist or cannot be listed.
    """
    if data_dir is None or str(data_dir) == "":
        raise UserError("this data set is read from files; say where they are with --data_dir=FOLDER.")
    root = pathlib.Path(data_dir)
    matches = lambda name: any(fnmatch.fnmatch(name.lower(), pattern) for pattern in patterns)
    try:
        if not root.exists():
            raise UserError(f"{root}: no such folder; check --data_dir.")
        found, level = [root], [root]
        for _ in range(2):
            listed = [child for folder in level if folder.is_dir() for child in children(folder)]
            level = [child for child in listed if matches(child.name) and child.is_dir()]
            found += level
    except OSError as error:
        raise UserError(f"{root}: cannot be listed ({error.strerror or error}); check --data_dir.") from error
    return found


def children(folder: pathlib.Path) -> list[pathlib.Path]:
    """Returns the entries of a folder, in order; raises UserError where it may not be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: cannot be listed ({error.strerror or error}); check --data_dir.") from error


class Missing(UserError):
    """The files of a data set were not found: something that a download can mend."""


def missing(dataset: str, data_dir, wanted: str, source: str = "") -> Missing:
    """Returns the error for files that were not found.

    Args:
      dataset: whose files.
      data_dir: where they were looked for.
      wanted: which ones, in words.
      source: where they can be downloaded, or ''.
    """
    fetch = f" Fetch it from {source}." if source else ""
    return Missing(f"{dataset}: found no {wanted} in or under {data_dir}.{fetch}")


# What damaged, encrypted or oddly compressed archives raise.
BROKEN = (
    EOFError,
    OSError,
    RuntimeError,
    NotImplementedError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def members(path, wanted=lambda name: True) -> dict[str, bytes]:
    """Returns name -> bytes of the files in a tar (however compressed) or zip archive whose names are wanted.

    Args:
      path: the archive.
      wanted: whether a member of that name is to be read; others are not even decoded where the format allows it.

    Raises:
      UserError: not an archive, or truncated.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return {
                    name: archive.read(name) for name in archive.namelist() if not name.endswith("/") and wanted(name)
                }
        with tarfile.open(path) as archive:
            picked = ((entry, archive.extractfile(entry)) for entry in archive if entry.isfile() and wanted(entry.name))
            return {entry.name: stream.read() for entry, stream in picked if stream}
    except BROKEN as error:
        raise UserError(f"{path}: not a readable tar or zip archive ({one_line(error)}); fetch it again.") from error


def file_digest(content, kind: str = "md5") -> str:
    """Returns the hexadecimal checksum of bytes or of a file, without decoding it."""
    if isinstance(content, bytes):
        return hashlib.new(kind, content).hexdigest()
    with open(content, "rb") as stream:
        return hashlib.file_digest(stream, kind).hexdigest()


def plain(name: str) -> str:
    """Returns a file's name without folders and compression suffix."""
    name = name.rsplit("/", 1)[-1]
    for suffix in SUFFIXES[1:]:
        name = name.removesuffix(suffix)
    return name


def entries(place, wanted=lambda name: True) -> dict[str, "pathlib.Path | bytes"]:
    """Returns plain name -> file (a folder's own files) or bytes (an archive's files, wherever they are in it).

    Args:
      place: the folder or archive.
      wanted: whether a file of that plain name is included; an archive's others are not decoded.
    """
    place = pathlib.Path(place)
    if not place.is_dir():
        held = members(place, lambda name: wanted(plain(name)))
        return {plain(name): decode(content, name) for name, content in held.items()}
    # The longest name first, so that of `a` and `a.gz` the decoded one stays.
    found = sorted((child for child in children(place) if child.is_file()), key=lambda child: -len(child.name))
    return {plain(child.name): child for child in found if wanted(plain(child.name))}


def content(entry) -> bytes:
    """Returns the decoded bytes of an entry."""
    return entry if isinstance(entry, bytes) else read(entry)
