"""Record stores: numbered records of fixed size, in main memory or in a file with snapshots for checkpoints.

A record's number is that of a client, or of a slot of a ring buffer. A file store is a folder: `data` holds the
records, one after the other; every snapshot has an index, ROUND-DIGEST: which record is where in `data`, and its
checksum. A checkpoint stores the `Reference` to its index. A record that a kept snapshot has is never overwritten: if
it changes, it moves (copy on write).
"""

import contextlib
import dataclasses
import functools
import io
import json
import math
import mmap
import os
import pathlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fedwin import tree
from fedwin.errors import UserError
from fedwin.files import digest_of, replace_bytes, writing
from fedwin.residence.blockwise import BLOCK_BYTES, AnyArray, Lazy, Picked
from fedwin.tree import PyTree

# Arrays [n, ...] of n records, one per field.
Records = list[np.ndarray]
# An entry of an index: the record's number, its checksum, and its place in `data`.
ENTRY = np.dtype([("number", "<i4"), ("check", "<u4"), ("slot", "<i8")])
# Records that are gathered at a time: more would double the memory of a dispatch.
GATHERED = 64
# Python has had a name for it since 3.13.
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)


class Field(NamedTuple):
    """One array of a record: path of the leaf, its shape in one record, and the name of its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class RecordLayout(NamedTuple):
    """Contents of a record."""

    fields: tuple[Field, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a record."""
        return sum(math.prod(field.shape) * np.dtype(field.dtype).itemsize for field in self.fields)

    def blank(self, count: int) -> Records:
        """Returns arrays of zeros [count, ...], one per field."""
        return [np.zeros((count, *field.shape), field.dtype) for field in self.fields]


def record_layout(record: PyTree) -> RecordLayout:
    """Returns the layout of a tree of shapes: one client's row, or a vector."""
    leaves = tree.named(record).items()
    return RecordLayout(tuple(Field(name, tuple(leaf.shape), np.dtype(leaf.dtype).name) for name, leaf in leaves))


@dataclasses.dataclass(frozen=True)
class Reference:
    """Stands in a checkpoint for the records of a snapshot: one leaf of the state.

    Attributes:
      index: name of the snapshot's index, ROUND-DIGEST.
      total: number of records that the store has room for.
    """

    index: str
    total: int


class Snapshot:
    """The records of one checkpoint in a store's folder. Reads the index at once, records when they are asked for.

    Attributes:
      ids: numbers of the records, ascending, int32 [n].
      total: number of records that the store has room for.

    Raises:
      UserError: a file is missing or damaged.
    """

    def __init__(self, root: pathlib.Path, reference: Reference):
        self.root, self.total = root, reference.total
        try:
            content = (root / reference.index).read_bytes()
            size = (root / "data").stat().st_size
        except OSError as error:
            raise UserError(f"the records in {root} can't be read ({type(error).__name__}).") from error
        if digest_of(content) != reference.index.partition("-")[2]:
            raise UserError(f"the records in {root} are damaged.")
        head, _, entries = content.partition(b"\n")
        fields = json.loads(head)
        self.layout = RecordLayout(tuple(Field(name, tuple(shape), dtype) for name, shape, dtype in fields))
        self.entries = np.frombuffer(entries, ENTRY)
        self.ids = self.entries["number"]
        if size < (self.entries["slot"].max(initial=-1) + 1) * self.layout.nbytes:
            raise UserError(f"the records in {root} are damaged.")

    def read(self, places: np.ndarray | slice) -> Records:
        """Returns records as arrays [n, ...], one per field; `places` are those in `ids`.

        Raises:
          UserError: a record is damaged.
        """
        entries = self.entries[places]
        return self._read(entries, self.layout.blank(len(entries)), range(len(entries)))

    def read_slots(self, start: int, stop: int) -> Records:
        """Returns the records numbered start to stop - 1, arrays [stop - start, ...]; zeros where there is none."""
        entries = self.entries[slice(*np.searchsorted(self.ids, (start, stop)))]
        return self._read(entries, self.layout.blank(stop - start), entries["number"] - start)

    def _read(self, entries: np.ndarray, records: Records, places: Iterable[int]) -> Records:
        with open(self.root / "data", "rb", buffering=0) as file:
            for (number, check, slot), place in zip(entries.tolist(), places, strict=True):
                _read_record(file, slot, self.layout.nbytes, records, place, check, number)
        return records


class SnapshotLeaf(Lazy):
    """One field of all records of a snapshot, an array [n, ...] that is read on access."""

    def __init__(self, snapshot: Snapshot, number: int):
        field = snapshot.layout.fields[number]
        self.snapshot, self.number = snapshot, number
        self.shape = (len(snapshot.ids), *field.shape)
        self.dtype = np.dtype(field.dtype)

    def _rows(self, start: int, stop: int) -> np.ndarray:
        rows = np.zeros((stop - start, *self.shape[1:]), self.dtype)
        step = max(1, BLOCK_BYTES // self.snapshot.layout.nbytes)
        for n in range(0, stop - start, step):  # a block at a time: the other fields take little memory
            rows[n : n + step] = self.snapshot.read(slice(start + n, min(start + n + step, stop)))[self.number]
        return rows


def snapshot_of(leaves: Sequence[AnyArray]) -> Snapshot | None:
    """Returns the snapshot whose fields, all of them and in order, are these arrays; None for other arrays."""
    own = [leaf for leaf in leaves if isinstance(leaf, SnapshotLeaf)]
    if not own or len(own) < len(leaves):
        return None
    snapshot = own[0].snapshot
    same = all(leaf.snapshot is snapshot and leaf.number == n for n, leaf in enumerate(own))
    return snapshot if same and len(own) == len(snapshot.layout.fields) else None


class RecordStore:
    """Storage of numbered records; this class is that of a process that owns none: it reads zeros, writes nothing."""

    def __init__(self, layout: RecordLayout, count: int):
        self.layout, self.count = layout, count

    def contains(self, numbers: np.ndarray) -> np.ndarray:
        """Returns which records were written, bool [n]."""
        return np.ones(len(numbers), bool)

    def read(self, numbers: np.ndarray, records: Records, places: np.ndarray) -> None:
        """Reads records [n] that were written into places [n] of arrays [room, ...].

        Raises:
          UserError: a record is damaged.
        """

    def write(self, numbers: np.ndarray, records: Records) -> None:
        """Writes distinct records, arrays [n, ...]; those of snapshots stay as they are."""

    def held(self) -> tuple[np.ndarray, Sequence[AnyArray]]:
        """Returns the records in main memory: their numbers, ascending, int32 [n], and arrays [n, ...] per field."""
        return np.zeros(0, np.int32), self.layout.blank(0)

    def commit(self, round: int) -> Reference | None:
        """Ends the snapshot of a round; None if a checkpoint has to hold the records itself, as `held` returns them."""
        return None

    def reclaim(self) -> None:
        """Frees the space of records that only removed checkpoints needed."""

    def resume(self, snapshot: Snapshot | None) -> bool:
        """Continues from a snapshot of its own and returns True, or starts without records and returns False."""
        return False

    def close(self) -> None:
        """Closes files."""


class MemoryStore(RecordStore):
    """A record store in main memory; its snapshots are the arrays themselves.

    Attributes:
      fields: the records, arrays [count, ...].
    """

    def __init__(self, layout: RecordLayout, count: int):
        super().__init__(layout, count)
        self.fields, self._written = [self._zeros(field) for field in layout.fields], np.zeros(count, bool)

    def _zeros(self, field: Field) -> np.ndarray:
        # Pages are mapped on first touch: records that are never written cost nothing, even beyond the system's memory.
        size = max(self.count * RecordLayout((field,)).nbytes, 1)
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
        return np.ndarray((self.count, *field.shape), field.dtype, pages)

    def contains(self, numbers: np.ndarray) -> np.ndarray:
        return self._written[numbers]

    def read(self, numbers: np.ndarray, records: Records, places: np.ndarray) -> None:
        for start in range(0, len(numbers), GATHERED):
            some = slice(start, start + GATHERED)
            for field, values in zip(self.fields, records, strict=True):
                values[places[some]] = field[numbers[some]]

    def write(self, numbers: np.ndarray, records: Records) -> None:
        for field, values in zip(self.fields, records, strict=True):
            field[numbers] = values
        self._written[numbers] = True

    def held(self) -> tuple[np.ndarray, Sequence[AnyArray]]:
        ids = np.flatnonzero(self._written).astype(np.int32)
        return ids, [Picked(field, ids) for field in self.fields]


class FileStore(RecordStore):
    """A record store in a folder, which is created at the first write.

    Args:
      root: the folder; the writer holds the lock of the run.
      rounds: returns the rounds that have a checkpoint, whose snapshots are kept.
    """

    def __init__(self, root: pathlib.Path, layout: RecordLayout, count: int, rounds: Callable[[], Iterable[int]]):
        super().__init__(layout, count)
        self.root, self.rounds = root, rounds
        self._data: io.FileIO | None = None
        self._clear()

    def _clear(self) -> None:
        """Closes the file; afterwards there are no records."""
        self.close()
        self._slots, self._checks = np.full(self.count, -1, np.int64), np.zeros(self.count, np.uint32)
        # Index of each kept snapshot -> the places of its records, oldest first.
        self._kept: dict[str, np.ndarray] = {}
        # Which places belong to a kept snapshot, and which are free.
        self._shared, self._free = np.zeros(0, bool), np.zeros(0, np.int64)

    def contains(self, numbers: np.ndarray) -> np.ndarray:
        return self._slots[numbers] >= 0

    def read(self, numbers: np.ndarray, records: Records, places: np.ndarray) -> None:
        for number, place in zip(numbers, places, strict=True):
            at, check = int(self._slots[number]), int(self._checks[number])
            _read_record(self._open(), at, self.layout.nbytes, records, place, check, number)

    def write(self, numbers: np.ndarray, records: Records) -> None:
        data = self._open()
        with writing(self.root / "data"):
            for n, (number, slot) in enumerate(zip(numbers, self._assign(numbers), strict=True)):
                parts = _views(records, n)
                self._checks[number] = _checksum(parts)
                data.seek(int(slot) * self.layout.nbytes)
                for part in parts:
                    while part:
                        part = part[data.write(part) :]  # a disk that is nearly full accepts a part

    def _assign(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the places to write these records to."""
        old = self._slots[numbers]
        moves = old < 0
        moves[~moves] = self._shared[old[~moves]]
        count = int(moves.sum())
        free, self._free = self._free[:count], self._free[count:]
        end = len(self._shared)
        self._shared = np.pad(self._shared, (0, count - len(free)))
        self._slots[numbers[moves]] = np.concatenate([free, np.arange(end, len(self._shared))])
        return self._slots[numbers]

    def commit(self, round: int) -> Reference:
        data = self._open()
        with writing(self.root / "data"):
            os.fsync(data.fileno())
        entries = np.zeros((self._slots >= 0).sum(), ENTRY)
        entries["number"] = np.flatnonzero(self._slots >= 0)
        entries["slot"], entries["check"] = self._slots[entries["number"]], self._checks[entries["number"]]
        content = json.dumps(self.layout.fields).encode() + b"\n" + entries.tobytes()
        index = f"{round}-{digest_of(content)}"
        replace_bytes(self.root / index, content)
        self._kept.pop(index, None)
        self._kept[index] = entries["slot"]
        self._shared[entries["slot"]] = True
        return Reference(index, self.count)

    def reclaim(self) -> None:
        # The newest snapshot may not have its checkpoint yet.
        rounds, newest = set(self.rounds()), next(reversed(self._kept), None)
        for index in [index for index in self._kept if _round_of(index) not in rounds and index != newest]:
            del self._kept[index]
            (self.root / index).unlink(missing_ok=True)
        self._shared[:] = False
        for slots in self._kept.values():
            self._shared[slots] = True
        used = self._shared.copy()
        used[self._slots[self._slots >= 0]] = True
        self._free = np.flatnonzero(~used)

    def resume(self, snapshot: Snapshot | None) -> bool:
        self._clear()
        own = (self.root, self.layout, self.count)
        if snapshot is None or (snapshot.root, snapshot.layout, snapshot.total) != own:
            return False
        self._slots[snapshot.ids] = snapshot.entries["slot"]
        self._checks[snapshot.ids] = snapshot.entries["check"]
        self._open()
        return True

    def close(self) -> None:
        if self._data is not None:
            self._data.close()
        self._data = None

    def _open(self) -> io.FileIO:
        """Opens the file if it is not; finds the snapshots that are kept, and removes others."""
        if self._data is not None:
            return self._data
        with writing(self.root / "data"):
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / "data").touch()
            self._data = open(self.root / "data", "r+b", buffering=0)
        rounds = set(self.rounds())
        for path in sorted(self.root.glob("*-*"), key=lambda path: path.stat().st_mtime):
            if _round_of(path.name) not in rounds:
                path.unlink()
                continue
            with contextlib.suppress(UserError):  # no checkpoint can be read from a damaged index
                self._kept[path.name] = Snapshot(self.root, Reference(path.name, 0)).entries["slot"]
        last = max((int(slots.max(initial=-1)) for slots in self._kept.values()), default=-1)
        self._shared = np.zeros(last + 1, bool)
        self.reclaim()
        return self._data


def _round_of(index: str) -> int:
    head = index.partition("-")[0]
    return int(head) if head.isdecimal() else -1


def _views(records: Records, place: int) -> list[memoryview]:
    """Returns views of the bytes of one record, one per field that has any."""
    views = (each[place : place + 1].reshape(-1).view(np.uint8) for each in records)
    return [memoryview(view) for view in views if view.size]  # type: ignore[arg-type]


def _checksum(parts: list[memoryview]) -> int:
    return functools.reduce(lambda value, part: zlib.crc32(part, value), parts, 0)


def _read_record(
    file: io.FileIO, slot: int, nbytes: int, records: Records, place: int, check: int, number: int
) -> None:
    """Reads the record in a slot of an unbuffered file into a place of arrays [room, ...].

    Raises:
      UserError: the system can't read it, or it differs from its checksum.
    """
    parts = _views(records, place)
    try:
        file.seek(slot * nbytes)
        for part in parts:
            while part and (count := file.readinto(part)):  # what a file that is too short lacks fails the checksum
                part = part[count:]
    except OSError as error:
        raise UserError(f"{file.name} can't be read ({error.strerror}); restore it.") from error
    if _checksum(parts) != check:
        raise UserError(
            f"{file.name} is damaged (record {number} differs from its checksum); restore it, or choose "
            f"another --out_dir."
        )
