"""The record store in a file, with snapshots for checkpoints.

A file store is a folder with three files. `layout` (JSON) names the fields of a record. `data` holds the records, one
after the other. `log` holds an entry per record that a snapshot changed, and one that ends the snapshot; a checkpoint
stores a `Manifest`, which says how long the log was. Records that a checkpoint still needs are never overwritten: a
changed row gets another record (copy on write), and `SlotAllocator` finds the records that are free again.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from fedwin.errors import UserError
from fedwin.files import AppendFile, replace_text, writing
from fedwin.residence.blockwise import Lazy
from fedwin.residence.record_store import Field, RecordLayout

# An entry of a log: whose row, its checksum, and the record that holds it.
ENTRY = np.dtype([("client", "<i4"), ("check", "<u4"), ("slot", "<i8")])


# The client of an entry that ends a snapshot; its slot is the round.
END = -1


def read_layout(folder: pathlib.Path) -> RecordLayout:
    """Reads the layout of a folder's records."""
    fields = json.loads((folder / "layout").read_text())
    return RecordLayout(tuple(Field(name, tuple(shape), dtype) for name, shape, dtype in fields))


class Manifest(NamedTuple):
    """Identifies a snapshot; a checkpoint holds it in place of rows.

    Attributes:
      total: K.
      folder: number of the folder.
      entries: length of its log.
      digest: hash of the layout and of these entries, uint8 [16].
    """

    total: Any
    folder: Any
    entries: Any
    digest: Any


def start_digest(layout: RecordLayout) -> Any:
    """Returns the hash object of a manifest's digest, which has the layout in it and no entries yet."""
    return hashlib.blake2b(layout.text.encode(), digest_size=16)


def row_views(rows: list[np.ndarray], place: int) -> list[memoryview]:
    """Returns views of the bytes of one row of arrays [n, ...], one per field that has any."""
    views = (each[place : place + 1].reshape(-1).view(np.uint8) for each in rows)
    return [memoryview(view) for view in views if view.size]  # type: ignore[arg-type]


def checksum(parts: list[memoryview]) -> int:
    """Returns the checksum of a row, given as `row_views`."""
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def read_record(file, slot: int, nbytes: int, parts: list[memoryview]) -> int:
    """Reads a record into the parts of a row; returns its checksum.

    Args:
      file: unbuffered.
      slot: number of the record.
      nbytes: of a record.
      parts: as of `row_views`.

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
    return checksum(parts)


class Snapshot:
    """The rows that belong to one checkpoint. Reads the log at once, rows when they are asked for.

    Args:
      root: folder of the numbered folders.
      manifest: of the checkpoint.

    Attributes:
      layout: of a row.
      log: the entries.
      ids: clients that have a row, ascending, int32 [n].

    Raises:
      UserError: files are missing or damaged.
    """

    def __init__(self, root: pathlib.Path, manifest: Manifest):
        self.manifest, self.folder = manifest, root / str(int(manifest.folder))
        entries = int(manifest.entries)
        try:
            self.layout = read_layout(self.folder)
            self.log = np.fromfile(self.folder / "log", ENTRY, entries)
            size = (self.folder / "data").stat().st_size
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(f"the clients' rows in {self.folder} can't be read ({type(error).__name__}).") from error
        digest = start_digest(self.layout)
        digest.update(self.log.tobytes())
        rows = self.log[self.log["client"] != END][::-1]
        self.ids, latest = np.unique(rows["client"], return_index=True)
        self._slots, self._checks = rows["slot"][latest], rows["check"][latest]
        intact = len(self.log) == entries and digest.digest() == np.asarray(manifest.digest).tobytes()
        if not intact or (len(self.ids) and size < (self._slots.max() + 1) * self.layout.nbytes):
            raise UserError(f"the clients' rows in {self.folder} are damaged.")

    def read(self, places: np.ndarray) -> list[np.ndarray]:
        """Returns rows as arrays [n, ...], one per field.

        Args:
          places: of the clients in `ids`, [n].

        Raises:
          UserError: a row is damaged.
        """
        rows = self.layout.blank(len(places))
        with open(self.folder / "data", "rb", buffering=0) as file:
            for n, place in enumerate(places):
                check = read_record(file, int(self._slots[place]), self.layout.nbytes, row_views(rows, n))
                if check != self._checks[place]:
                    raise damaged(self.folder, self.ids[place])
        return rows

    def leaves(self) -> dict[str, Any]:
        """Returns the leaves of a checkpoint that holds the rows itself, by name; rows are SnapshotLeafs."""
        rows = {f"table.rows.{field.name}".rstrip("."): number for number, field in enumerate(self.layout.fields)}
        return {"table.ids": self.ids, **{name: SnapshotLeaf(self, number) for name, number in rows.items()}}


def damaged(folder: pathlib.Path, client: int) -> UserError:
    """Returns the error for a row that differs from its checksum."""
    return UserError(
        f"{folder / 'data'} is damaged (the row of client {client} differs from its checksum); restore it, or choose "
        f"another --out_dir."
    )


class SnapshotLeaf(Lazy):
    """One leaf of all rows of a snapshot, an array [n, ...] that is read on access.

    Args:
      snapshot: the rows.
      number: of the field.
    """

    def __init__(self, snapshot: Snapshot, number: int):
        field = snapshot.layout.fields[number]
        self.snapshot, self.number = snapshot, number
        self.shape = (len(snapshot.ids), *field.shape)
        self.dtype = np.dtype(field.dtype)

    def _rows(self, start: int, stop: int) -> np.ndarray:
        rows = np.zeros((stop - start, *self.shape[1:]), self.dtype)
        for n in range(start, stop):  # one by one: the other leaves take no memory
            rows[n - start] = self.snapshot.read(np.array([n]))[self.number][0]
        return rows


# A record that holds the current row of a client is needed by all snapshots to come.
LIVE = np.iinfo(np.int32).max


class SlotAllocator:
    """Assigns records of a file to rows. Record s holds a row of the snapshots born[s] .. died[s] - 1.

    Args:
      num_clients: K.

    Attributes:
      slots: client -> its record, -1 without, int64 [K].
      checksums: client -> checksum of its row, uint32 [K].
      rounds: snapshot -> its round.
    """

    def __init__(self, num_clients: int):
        self.slots = np.full(num_clients, -1, np.int64)
        self.checksums = np.zeros(num_clients, np.uint32)
        self.rounds: list[int] = []
        self._end = 0
        self._born, self._died = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self._free = np.zeros(0, np.int64)
        self._changed: list[np.ndarray] = []

    @property
    def current(self) -> int:
        """The number of the snapshot that is being written."""
        return len(self.rounds)

    def replay(self, log: np.ndarray) -> None:
        """Applies the entries of a log that ends with a snapshot; afterwards, `reclaim` finds the free slots."""
        self._reserve(int(log["slot"][log["client"] != END].max(initial=-1)) + 1)
        start = 0
        for end in np.flatnonzero(log["client"] == END):
            entries = log[start:end]
            self._bind(entries["client"], entries["slot"])
            self.checksums[entries["client"]] = entries["check"]
            self.rounds.append(int(log["slot"][end]))
            start = int(end) + 1

    def assign(self, clients: np.ndarray) -> np.ndarray:
        """Returns the records into which rows of these distinct clients may be written in the current snapshot."""
        old = self.slots[clients]
        moves = old < 0
        moves[~moves] = self._born[old[~moves]] < self.current
        movers = clients[moves]
        if len(movers):
            self._bind(movers, self._take(len(movers)))
            self._changed.append(movers)
        return self.slots[clients]

    def commit(self, round: int) -> np.ndarray:
        """Ends the current snapshot; returns the clients whose rows changed in it."""
        changed = np.concatenate([np.zeros(0, np.int64), *self._changed])
        self._changed.clear()
        self.rounds.append(round)
        return changed

    def reclaim(self, rounds: Iterable[int]) -> None:
        """Frees the records that neither the newest snapshot needs nor those of these rounds."""
        needed_rounds = set(rounds)
        newest = self.current - 1
        alive = [number for number, round in enumerate(self.rounds) if round in needed_rounds or number == newest]
        alive_snapshots = np.array([*alive, LIVE])
        born, died = self._born[: self._end], self._died[: self._end]
        # Free is a record that was replaced before the first snapshot that is alive and not older than the record.
        self._free = np.flatnonzero((died < LIVE) & (alive_snapshots[np.searchsorted(alive_snapshots, born)] >= died))

    def _bind(self, clients: np.ndarray, slots: np.ndarray) -> None:
        old = self.slots[clients]
        self._died[old[old >= 0]] = self.current
        self.slots[clients] = slots
        self._born[slots], self._died[slots] = self.current, LIVE

    def _take(self, count: int) -> np.ndarray:
        used, self._free = self._free[:count], self._free[count:]
        start = self._end
        self._reserve(start + count - len(used))
        return np.concatenate([used, np.arange(start, self._end)])

    def _reserve(self, end: int) -> None:
        self._end = max(end, self._end)
        if self._end > len(self._born):
            more = max(self._end, 2 * len(self._born)) - len(self._born)
            self._born, self._died = np.pad(self._born, (0, more)), np.pad(self._died, (0, more))


class FileStore:
    """A record store in a numbered folder, which is created at the first write.

    Records are numbered by client here; for a ring buffer, read "slot of the ring buffer" for "client".

    Args:
      root: folder of the numbered folders; the writer holds the lock of the run.
      layout: of a record.
      num_clients: K, the number of records that can be stored.
      rounds: returns the rounds that have a checkpoint.
    """

    def __init__(self, root: pathlib.Path, layout: RecordLayout, num_clients: int, rounds: Callable[[], Iterable[int]]):
        self.root, self.layout, self.num_clients, self.rounds = root, layout, num_clients, rounds
        self.allocator = SlotAllocator(num_clients)
        self._digest = start_digest(layout)
        self._entries = 0
        self._folder: pathlib.Path | None = None
        self._files = contextlib.ExitStack()

    def contains(self, clients: np.ndarray) -> np.ndarray:
        """Returns which clients have a row, bool [n]."""
        return self.allocator.slots[clients] >= 0

    def read(self, clients: np.ndarray, rows: list[np.ndarray], places: np.ndarray) -> None:
        """Reads rows of clients that have one into places of arrays [n, ...], one per field.

        Raises:
          UserError: a row is damaged.
        """
        for client, place in zip(clients, places, strict=True):
            check = read_record(
                self._data, int(self.allocator.slots[client]), self.layout.nbytes, row_views(rows, place)
            )
            if check != self.allocator.checksums[client]:
                raise damaged(self._data_path.parent, client)

    def write(self, clients: np.ndarray, rows: list[np.ndarray]) -> None:
        """Writes rows [n, ...] of distinct clients; those of earlier snapshots stay as they are."""
        self._create_folder()
        with writing(self._data_path):
            for n, (client, slot) in enumerate(zip(clients, self.allocator.assign(clients), strict=True)):
                parts = row_views(rows, n)
                self.allocator.checksums[client] = checksum(parts)
                self._data.seek(int(slot) * self.layout.nbytes)
                for part in parts:
                    done = 0
                    while done < len(part):
                        done += self._data.write(part[done:])

    def commit(self, round: int) -> Manifest:
        """Ends a snapshot and flushes it to the disk; returns its manifest."""
        self._create_folder()
        with writing(self._data_path):
            os.fsync(self._data.fileno())
        changed = self.allocator.commit(round)
        entries = np.zeros(len(changed) + 1, ENTRY)
        entries["client"][:-1], entries["client"][-1] = changed, END
        entries["slot"][:-1], entries["slot"][-1] = self.allocator.slots[changed], round
        entries["check"][:-1] = self.allocator.checksums[changed]
        self._log.write(entries.tobytes())
        self._log.flush()
        self._digest.update(entries.tobytes())
        self._entries += len(entries)
        assert self._folder is not None
        digest = np.frombuffer(self._digest.digest(), np.uint8)
        number = np.int32(self._folder.name)
        return Manifest(np.int32(self.num_clients), number, np.int64(self._entries), digest)

    def reclaim(self) -> None:
        """Frees the records that only removed checkpoints needed."""
        self.allocator.reclaim(self.rounds())

    def owns(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot was written to this root with this layout."""
        return snapshot.folder.parent == self.root and snapshot.layout == self.layout

    def resume(self, snapshot: Snapshot) -> None:
        """Continues from a snapshot that it owns; discards later ones."""
        self.close()
        self._folder, self._entries = snapshot.folder, len(snapshot.log)
        self.allocator = SlotAllocator(self.num_clients)
        self.allocator.replay(snapshot.log)
        self.allocator.reclaim(self.rounds())
        self._digest = start_digest(self.layout)
        self._digest.update(snapshot.log.tobytes())
        with writing(self._log_path):
            os.truncate(self._log_path, self._entries * ENTRY.itemsize)
        self._remove_others()
        self._open()

    def clear(self) -> None:
        """Starts without rows; snapshots of existing checkpoints remain in their folder."""
        self.close()
        self.slots, self._digest, self._entries, self._folder = (
            SlotAllocator(self.num_clients),
            start_digest(self.layout),
            0,
            None,
        )

    def close(self) -> None:
        """Closes the files."""
        self._files.close()

    @property
    def _data_path(self) -> pathlib.Path:
        return (self._folder or self.root) / "data"

    @property
    def _log_path(self) -> pathlib.Path:
        return (self._folder or self.root) / "log"

    def _create_folder(self) -> None:
        """Creates a folder with the next number, unless this store has one."""
        if self._folder is not None:
            return
        with writing(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            folder = self.root / str(max(_numbers(self.root), default=-1) + 1)
            folder.mkdir()
            (folder / "data").touch()
            (folder / "log").touch()
        replace_text(folder / "layout", self.layout.text)
        self._folder = folder
        self._remove_others()
        self._open()

    def _open(self) -> None:
        with writing(self._data_path):
            self._data = self._files.enter_context(open(self._data_path, "r+b", buffering=0))
        self._log = self._files.enter_context(contextlib.closing(AppendFile(self._log_path)))

    def _remove_others(self) -> None:
        """Removes the folders that belong to no existing checkpoint."""
        rounds = set(self.rounds())
        for number in _numbers(self.root):
            folder = self.root / str(number)
            if folder != self._folder and not rounds & _rounds_of(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _numbers(root: pathlib.Path) -> list[int]:
    return [int(path.name) for path in root.iterdir() if path.name.isdecimal()]


def _rounds_of(folder: pathlib.Path) -> set[int]:
    """Returns the rounds of all snapshots in a folder's log."""
    try:
        log = np.fromfile(folder / "log", ENTRY)
    except OSError:
        return set()
    return set(log["slot"][log["client"] == END].tolist())
