"""Clients' rows in files: what is stored there, and the rows that belong to one checkpoint, read on access.

A folder holds three files. `layout` says what a row consists of. `data` has records of one size, a row each. `log` is
append-only: an entry says which record has become whose row, and an entry of client -1 ends a generation. A checkpoint
names a generation by the length of the log and a hash of what comes before; a record that a kept checkpoint needs is
never written again, so all that changed after it leaves its rows as they were.
"""

import hashlib
import json
import math
import pathlib
import zlib
from typing import Any, NamedTuple

import jax
import numpy as np

from fedwin.errors import UserError
from fedwin.residence.lazy import Lazy

ENTRY = np.dtype([("client", "<i4"), ("check", "<u4"), ("slot", "<i8")])
# The client of an entry that ends a generation; its slot is the round.
END = -1


class Field(NamedTuple):
    """A leaf of a row.

    Attributes:
      name: its path.
      shape: without the clients' axis.
      dtype: by name.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of it in a record."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Layout(NamedTuple):
    """What a record consists of.

    Attributes:
      fields: in the order in which they are stored.
    """

    fields: tuple[Field, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a record."""
        return sum(field.nbytes for field in self.fields)

    @property
    def text(self) -> str:
        """What `layout` holds."""
        return json.dumps(self.fields)

    def blank(self, count: int) -> list[np.ndarray]:
        """Returns arrays [count, ...], one per field."""
        return [np.zeros((count, *field.shape), field.dtype) for field in self.fields]


def layout_of(row) -> Layout:
    """Returns the layout of a tree of shapes: one client's row."""
    leaves = jax.tree_util.tree_leaves_with_path(row)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return Layout(tuple(Field(name(path), tuple(leaf.shape), np.dtype(leaf.dtype).name) for path, leaf in leaves))


def read_layout(folder: pathlib.Path) -> Layout:
    """Reads what a folder's records consist of."""
    said = json.loads((folder / "layout").read_text())
    return Layout(tuple(Field(name, tuple(shape), dtype) for name, shape, dtype in said))


class Mark(NamedTuple):
    """What a checkpoint holds in place of rows.

    Attributes:
      total: K.
      folder: number of the folder.
      entries: of its log.
      digest: hash of the layout and of these entries, uint8 [16].
    """

    total: Any
    folder: Any
    entries: Any
    digest: Any


def hash_of(layout: Layout) -> Any:
    """Returns a hash that has taken in the layout, and shall take in entries."""
    return hashlib.blake2b(layout.text.encode(), digest_size=16)


def parts_of(rows: list[np.ndarray], place: int) -> list[memoryview]:
    """Returns the bytes of one row of arrays [n, ...], in place."""
    views = (each[place : place + 1].reshape(-1).view(np.uint8) for each in rows)
    return [memoryview(view) for view in views if view.size]  # type: ignore[arg-type]


def check_of(parts: list[memoryview]) -> int:
    """Returns the checksum of a row."""
    found = 0
    for part in parts:
        found = zlib.crc32(part, found)
    return found


def read_record(file, slot: int, nbytes: int, parts: list[memoryview]) -> int:
    """Reads a record into the parts of a row; returns its checksum.

    Args:
      file: unbuffered.
      slot: number of the record.
      nbytes: of a record.
      parts: as of `parts_of`.

    Raises:
      UserError: the system can't read it.
    """
    try:
        file.seek(slot * nbytes)
        for part in parts:
            done = 0
            while done < len(part):
                count = file.readinto(part[done:])
                if not count:
                    return -1  # the file ends here: no row has this checksum
                done += count
    except OSError as error:
        raise UserError(f"{file.name} can't be read ({error.strerror}); restore it.") from error
    return check_of(parts)


class Generation:
    """The rows that belong to one checkpoint; nothing is read but the log until they are asked for.

    Args:
      root: where the folders are.
      mark: what the checkpoint says.

    Attributes:
      layout: what a row consists of.
      log: the entries.
      ids: clients that have a row, ascending, int32 [n].

    Raises:
      UserError: files are missing, or differ from what they were.
    """

    def __init__(self, root: pathlib.Path, mark: Mark):
        self.mark, self.folder = mark, root / str(int(mark.folder))
        entries = int(mark.entries)
        try:
            self.layout = read_layout(self.folder)
            self.log = np.fromfile(self.folder / "log", ENTRY, entries)
            size = (self.folder / "data").stat().st_size
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(f"the clients' rows in {self.folder} can't be read ({type(error).__name__}).") from error
        digest = hash_of(self.layout)
        digest.update(self.log.tobytes())
        rows = self.log[self.log["client"] != END][::-1]
        self.ids, latest = np.unique(rows["client"], return_index=True)
        self._slots, self._checks = rows["slot"][latest], rows["check"][latest]
        whole = len(self.log) == entries and digest.digest() == np.asarray(mark.digest).tobytes()
        if not whole or (len(self.ids) and size < (self._slots.max() + 1) * self.layout.nbytes):
            raise UserError(f"the clients' rows in {self.folder} are damaged.")

    def read(self, places: np.ndarray) -> list[np.ndarray]:
        """Returns rows as arrays [n, ...], one per field.

        Args:
          places: numbers among `ids`.

        Raises:
          UserError: a row is not what was written.
        """
        found = self.layout.blank(len(places))
        with open(self.folder / "data", "rb", buffering=0) as file:
            for n, place in enumerate(places):
                check = read_record(file, int(self._slots[place]), self.layout.nbytes, parts_of(found, n))
                if check != self._checks[place]:
                    raise damaged(self.folder, self.ids[place])
        return found

    def leaves(self) -> dict[str, Any]:
        """Returns ids and rows as a checkpoint that holds rows has them, by name; rows are read on access."""
        rows = {f"table.rows.{field.name}".rstrip("."): number for number, field in enumerate(self.layout.fields)}
        return {"table.ids": self.ids, **{name: FiledLeaf(self, number) for name, number in rows.items()}}


def damaged(folder: pathlib.Path, client: int) -> UserError:
    """Returns the error for a row that is not what was written."""
    return UserError(
        f"{folder / 'data'} is damaged (the row of client {client} differs from its checksum); restore it, or choose "
        f"another --out_dir."
    )


class FiledLeaf(Lazy):
    """One leaf of all rows of a generation; becomes an array [n, ...] where one is needed.

    Args:
      generation: whose.
      number: of the field.
    """

    def __init__(self, generation: Generation, number: int):
        field = generation.layout.fields[number]
        self.generation, self.number = generation, number
        self.shape = (len(generation.ids), *field.shape)
        self.dtype = np.dtype(field.dtype)

    def _rows(self, start: int, stop: int) -> np.ndarray:
        found = np.zeros((stop - start, *self.shape[1:]), self.dtype)
        for n in range(start, stop):  # one by one: the other leaves need no room
            found[n - start] = self.generation.read(np.array([n]))[self.number][0]
        return found
