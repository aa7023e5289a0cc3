"""Reads files that may be plain or compressed, in folders or in archives, and CSV files."""

import bz2
import contextlib
import csv
import fnmatch
import gzip
import hashlib
import io
import lzma
import pathlib
import tarfile
import zipfile
from collections.abc import Callable, Iterator

import numpy as np

from fedwin.errors import UserError

# Messages of libraries may quote the content of a file.
MAX_MESSAGE = 300
SUFFIXES = ("", ".gz", ".xz", ".bz2", ".lzma")
MAGIC = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\x00", lzma.open), (b"BZh", bz2.open))

# A file of a folder, or the decompressed bytes of a file of an archive.
Entry = pathlib.Path | bytes


class FolderNeeded(UserError):
    """A data set is read from files, and no folder is given."""


@contextlib.contextmanager
def reading(where: object, expected: str = "", remedy: str = "fetch it again") -> Iterator[None]:
    """Converts the errors about a damaged file or record to a UserError of one line.

    Args:
      expected: the complaint, such as 'not a readable .npz file', where the reason is a library's.

    Raises:
      UserError: `where: expected (reason); remedy.`, or `where: reason.`
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything
        reason = f"{'there is no ' * isinstance(error, KeyError)}{one_line(error)}"
        raise UserError(f"{where}: {expected} ({reason}); {remedy}." if expected else f"{where}: {reason}.") from error


def read_npz(source) -> dict[str, np.ndarray]:
    """Returns name -> array of an .npz file, a path or stream; raises ValueError for a member that is no array."""
    with np.lib.npyio.NpzFile(source) as archive:  # np.load takes any text file for a pickle
        arrays = {name: archive[name] for name in archive.files}
    if foreign := [name for name, value in arrays.items() if not isinstance(value, np.ndarray)]:
        raise ValueError(f"'{foreign[0]}' is no array")
    return arrays


def read(path) -> bytes:
    """Returns the decompressed content of a file.

    Raises:
      UserError: the file is missing, unreadable or truncated.
    """
    try:
        raw = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; check the path and --data_dir.") from error
    return decode(raw, path)


def decode(raw: bytes, name) -> bytes:
    """Decompresses gzip, xz, lzma or bzip2, and returns other bytes unchanged; `name` is the file.

    Raises:
      UserError: the compressed data is truncated or damaged.
    """
    matching = (function for magic, function in MAGIC if raw.startswith(magic))
    function: Callable | None = next(matching, lzma.open if str(name).endswith(".lzma") else None)
    if function is None:
        return raw
    with reading(name, "the compressed file is truncated or damaged"), function(io.BytesIO(raw)) as stream:
        return stream.read()


def content(entry: Entry) -> bytes:
    """Returns the decompressed bytes of an entry of `entries`."""
    return entry if isinstance(entry, bytes) else read(entry)


def entries(location, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, Entry]:
    """Returns plain name -> path or bytes of the files of a folder (not of its subfolders) or of an archive (all).

    Files that are not `wanted`, by their plain names, are not decompressed.
    """
    location = pathlib.Path(location)
    if not location.is_dir():
        blobs = members(location, lambda name: wanted(plain(name)))
        return {plain(name): decode(blob, name) for name, blob in blobs.items()}
    # Longest names first, so that `a` replaces `a.gz`.
    paths = sorted(filter(pathlib.Path.is_file, location.iterdir()), key=lambda path: (-len(path.name), path.name))
    return {plain(path.name): path for path in paths if wanted(plain(path.name))}


def members(path, wanted: Callable[[str], object] = lambda name: True) -> dict[str, bytes]:
    """Returns name -> bytes of the files of a tar (however compressed) or zip archive.

    Files that are not `wanted`, by their names, are not even decompressed if the format allows it.

    Raises:
      UserError: not an archive, or truncated.
    """
    with reading(path, "not a readable tar or zip archive"):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                names = [name for name in packed.namelist() if not name.endswith("/") and wanted(name)]
                return {name: packed.read(name) for name in names}
        with tarfile.open(path) as archive:
            chosen = (entry for entry in archive if entry.isfile() and wanted(entry.name))
            return {entry.name: stream.read() for entry in chosen if (stream := archive.extractfile(entry))}


def search(folders: list[pathlib.Path], names, archives: str = "*.zip") -> dict[str, tuple[pathlib.Path, Entry]] | None:
    """Finds files that belong together, possibly compressed, in the first folder or archive that has all of them.

    Args:
      folders: folders, or archives themselves.
      names: plain names of the files.
      archives: pattern of the archives in a folder.

    Returns:
      Plain name -> (place for messages, path or bytes); None if there is no such place.

    Raises:
      UserError: an archive can't be read, and no other place has the files.
    """
    broken = None
    for folder in folders:
        for place in [folder] if folder.is_file() else [folder, *sorted(folder.glob(archives))]:
            try:
                found = entries(place, set(names).__contains__)
            except UserError as error:  # perhaps of an unrelated archive
                broken = broken or error
                continue
            if all(name in found for name in names):
                where = {name: place / name if isinstance(entry, bytes) else entry for name, entry in found.items()}
                return {name: (where[name], found[name]) for name in names}
    if broken is not None:
        raise broken
    return None


def csv_rows(path, blob: bytes, columns: list[str]):
    """Yields (line, values of some columns) of each record of a CSV file; `path` is for error messages.

    Raises:
      UserError: not a CSV file, a column is missing, or a record has fewer or more values than there are columns.
    """
    try:
        reader = csv_reader(blob)
        if absent := sorted(set(columns) - set(reader.fieldnames or ())):
            raise UserError(
                f"{path}: column {', '.join(absent)} is missing; it has {', '.join(reader.fieldnames or ['none'])}."
            )
        for record in reader:
            row = [record[column] for column in columns]
            if None in record or None in row:  # the name of values that have no column
                than = f"{'more' if None in record else 'fewer'} values than the {len(reader.fieldnames or ())} columns"
                raise UserError(f"{path}, line {reader.line_num}: it has {than}.")
            yield reader.line_num, row
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8.") from error
    except csv.Error as error:
        line = reader.line_num + 1
        raise UserError(f"{path}, line {line}: not a CSV file ({error}); is a quote left open?") from error


def columns_of(blob: bytes) -> list[str]:
    """Returns the column names of a list, given its content."""
    try:
        return list(csv_reader(blob).fieldnames or ())
    except (csv.Error, UnicodeDecodeError):
        return []  # reading the list will raise the error


def csv_reader(blob: bytes) -> csv.DictReader:
    """Opens the records of a list, given its content."""
    return csv.DictReader(io.StringIO(blob.decode("utf-8-sig"), newline=""), strict=True)


def locate(folder, name: str) -> pathlib.Path | None:
    """Returns the path `folder/name`, possibly with a compression suffix; None if there is none."""
    paths = (pathlib.Path(folder) / (name + suffix) for suffix in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def locate_all(locations: list[pathlib.Path], *names: str) -> list[pathlib.Path] | None:
    """Finds files that belong together in the first folder that has all of them, possibly compressed.

    A location may also be a file itself, if it is the only wanted one. None if there is no such place.
    """
    for place in locations:
        if place.is_file() and names == (plain(place.name),):
            return [place]
        if len(found := [path for name in names if (path := locate(place, name))]) == len(names):
            return found
    return None


def folders(data_dir, *patterns: str) -> list[pathlib.Path]:
    """Returns data_dir and its subfolders to depth two with names like lower-case patterns of fnmatch, nearest first.

    So a loader finds its files whether data_dir is their folder or a parent of it; it may be a file such as an archive.

    Raises:
      UserError: data_dir is not given or does not exist.
      OSError: it can't be listed.
    """
    if data_dir is None or str(data_dir) == "":
        raise FolderNeeded("this data set is read from files; set --data_dir=FOLDER.")
    root = pathlib.Path(data_dir)
    matches = lambda name: any(fnmatch.fnmatch(name.lower(), pattern) for pattern in patterns)
    if not root.exists():
        raise UserError(f"{root}: no such file or folder; check --data_dir.")
    result, level = [root], [root]
    for _ in range(2):
        listed = [child for folder in level if folder.is_dir() for child in sorted(folder.iterdir())]
        level = [child for child in listed if matches(child.name) and child.is_dir()]
        result += level
    return result


class Missing(UserError):
    """The files of a data set were not found; they may be downloaded."""


def missing(dataset: str, data_dir, wanted: str, source: str) -> Missing:
    """Builds the error for files, described by `wanted`, that were not found; `source` says where there are some."""
    return Missing(f"{dataset}: found no {wanted} in or under {data_dir}. Fetch it from {source}.")


def file_digest(content, kind: str = "md5") -> str:
    """Returns the checksum of bytes or of the file at a path; `kind` is a name known to hashlib, such as 'md5'."""
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
