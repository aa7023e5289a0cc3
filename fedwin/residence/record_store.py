"""Which record of a file holds whose row, and which records no kept generation needs."""

import contextlib
import hashlib
import json
import math
import os
import pathlib
import shutil
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedwin.errors import UserError
from fedwin.files import AppendFile, replace_text, writing
from fedwin.residence.blockwise import Lazy

# A record that holds the current row of a client is needed by all generations to come.
LIVE = np.iinfo(np.int32).max


class SlotAllocator:
    """Records of a file. Record s holds a row of the generations born[s] .. died[s] - 1.

    Args:
      num_clients: K.

    Attributes:
      of: client -> its record, -1 without, int64 [K].
      check: client -> checksum of its row, uint32 [K].
      generation: the number of the generation that is being written.
      rounds: generation -> its round.
    """

    def __init__(self, num_clients: int):
        self.of = np.full(num_clients, -1, np.int64)
        self.check = np.zeros(num_clients, np.uint32)
        self.rounds: list[int] = []
        self._end = 0
        self._born, self._died = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self._free = np.zeros(0, np.int64)
        self._changed: list[np.ndarray] = []

    @property
    def generation(self) -> int:
        """The number of the generation that is being written."""
        return len(self.rounds)

    def replay(self, log: np.ndarray) -> None:
        """Takes in the entries of a log that ends with a generation; afterwards, `keep` says what is free."""
        self._reserve(int(log["slot"][log["client"] != END].max(initial=-1)) + 1)
        begin = 0
        for end in np.flatnonzero(log["client"] == END):
            part = log[begin:end]
            self._bind(part["client"], part["slot"])
            self.check[part["client"]] = part["check"]
            self.rounds.append(int(log["slot"][end]))
            begin = int(end) + 1

    def assign(self, clients: np.ndarray) -> np.ndarray:
        """Returns where rows of these distinct clients may be written in the generation that is being written."""
        old = self.of[clients]
        moves = old < 0
        moves[~moves] = self._born[old[~moves]] < self.generation
        movers = clients[moves]
        if len(movers):
            self._bind(movers, self._take(len(movers)))
            self._changed.append(movers)
        return self.of[clients]

    def commit(self, round: int) -> np.ndarray:
        """Ends the generation that is being written; returns the clients whose rows changed in it."""
        changed = np.concatenate([np.zeros(0, np.int64), *self._changed])
        self._changed.clear()
        self.rounds.append(round)
        return changed

    def keep(self, rounds: Iterable[int]) -> None:
        """Frees the records that neither the newest generation needs nor those of these rounds."""
        kept = set(rounds)
        last = self.generation - 1
        alive = np.array([g for g, round in enumerate(self.rounds) if round in kept or g == last] + [LIVE])
        born, died = self._born[: self._end], self._died[: self._end]
        # The first kept generation that a record may belong to comes too late for it.
        self._free = np.flatnonzero((died < LIVE) & (alive[np.searchsorted(alive, born)] >= died))

    def _bind(self, clients: np.ndarray, slots: np.ndarray) -> None:
        old = self.of[clients]
        self._died[old[old >= 0]] = self.generation
        self.of[clients] = slots
        self._born[slots], self._died[slots] = self.generation, LIVE

    def _take(self, count: int) -> np.ndarray:
        used, self._free = self._free[:count], self._free[count:]
        begin = self._end
        self._reserve(begin + count - len(used))
        return np.concatenate([used, np.arange(begin, self._end)])

    def _reserve(self, end: int) -> None:
        self._end = max(end, self._end)
        if self._end > len(self._born):
            more = max(self._end, 2 * len(self._born)) - len(self._born)
            self._born, self._died = np.pad(self._born, (0, more)), np.pad(self._died, (0, more))


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


def row_layout(row) -> Layout:
    """Returns the layout of a tree of shapes: one client's row."""
    leaves = jax.tree_util.tree_leaves_with_path(row)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return Layout(tuple(Field(name(path), tuple(leaf.shape), np.dtype(leaf.dtype).name) for path, leaf in leaves))


def read_layout(folder: pathlib.Path) -> Layout:
    """Reads what a folder's records consist of."""
    said = json.loads((folder / "layout").read_text())
    return Layout(tuple(Field(name, tuple(shape), dtype) for name, shape, dtype in said))


class Manifest(NamedTuple):
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


class Snapshot:
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

    def __init__(self, root: pathlib.Path, mark: Manifest):
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
        return {"table.ids": self.ids, **{name: SnapshotLeaf(self, number) for name, number in rows.items()}}


def damaged(folder: pathlib.Path, client: int) -> UserError:
    """Returns the error for a row that is not what was written."""
    return UserError(
        f"{folder / 'data'} is damaged (the row of client {client} differs from its checksum); restore it, or choose "
        f"another --out_dir."
    )


class SnapshotLeaf(Lazy):
    """One leaf of all rows of a generation; becomes an array [n, ...] where one is needed.

    Args:
      generation: whose.
      number: of the field.
    """

    def __init__(self, generation: Snapshot, number: int):
        field = generation.layout.fields[number]
        self.generation, self.number = generation, number
        self.shape = (len(generation.ids), *field.shape)
        self.dtype = np.dtype(field.dtype)

    def _rows(self, start: int, stop: int) -> np.ndarray:
        found = np.zeros((stop - start, *self.shape[1:]), self.dtype)
        for n in range(start, stop):  # one by one: the other leaves need no room
            found[n - start] = self.generation.read(np.array([n]))[self.number][0]
        return found


class FileStore:
    """Rows of the clients that have taken part, in a folder of their own; made at the first write.

    Args:
      root: the folders are below it; whoever writes holds the lock of the run.
      layout: of a row.
      num_clients: K.
      rounds: returns the rounds whose checkpoints are there.
    """

    def __init__(self, root: pathlib.Path, layout: Layout, num_clients: int, rounds: Callable[[], Iterable[int]]):
        self.root, self.layout, self.num_clients, self.rounds = root, layout, num_clients, rounds
        self.slots = SlotAllocator(num_clients)
        self._hash = hash_of(layout)
        self._entries = 0
        self._folder: pathlib.Path | None = None
        self._files = contextlib.ExitStack()

    def known(self, clients: np.ndarray) -> np.ndarray:
        """Returns which clients have a row, bool."""
        return self.slots.of[clients] >= 0

    def read(self, clients: np.ndarray, rows: list[np.ndarray], places: np.ndarray) -> None:
        """Reads rows of clients that have one into given places of arrays [n, ...].

        Raises:
          UserError: a row is not what was written.
        """
        for client, place in zip(clients, places, strict=True):
            check = read_record(self._data, int(self.slots.of[client]), self.layout.nbytes, parts_of(rows, place))
            if check != self.slots.check[client]:
                raise damaged(self._data_path.parent, client)

    def write(self, clients: np.ndarray, rows: list[np.ndarray]) -> None:
        """Writes rows [n, ...] of distinct clients; those of earlier generations stay as they are."""
        self._begin()
        with writing(self._data_path):
            for n, (client, slot) in enumerate(zip(clients, self.slots.assign(clients), strict=True)):
                parts = parts_of(rows, n)
                self.slots.check[client] = check_of(parts)
                self._data.seek(int(slot) * self.layout.nbytes)
                for part in parts:
                    done = 0
                    while done < len(part):
                        done += self._data.write(part[done:])

    def commit(self, round: int) -> Manifest:
        """Ends a generation and brings it to the disk; returns what a checkpoint says of it."""
        self._begin()
        with writing(self._data_path):
            os.fsync(self._data.fileno())
        changed = self.slots.commit(round)
        entries = np.zeros(len(changed) + 1, ENTRY)
        entries["client"][:-1], entries["client"][-1] = changed, END
        entries["slot"][:-1], entries["slot"][-1] = self.slots.of[changed], round
        entries["check"][:-1] = self.slots.check[changed]
        self._log.write(entries.tobytes())
        self._log.flush()
        self._hash.update(entries.tobytes())
        self._entries += len(entries)
        assert self._folder is not None
        digest = np.frombuffer(self._hash.digest(), np.uint8)
        number = np.int32(self._folder.name)
        return Manifest(np.int32(self.num_clients), number, np.int64(self._entries), digest)

    def keep(self) -> None:
        """Frees what no checkpoint needs that is there."""
        self.slots.keep(self.rounds())

    def owns(self, generation: Snapshot) -> bool:
        """Whether a generation is one of this seed's."""
        return generation.folder.parent == self.root and generation.layout == self.layout

    def begin_with(self, generation: Snapshot) -> None:
        """Goes on from one of this seed's generations; what came after it is forgotten."""
        self.close()
        self._folder, self._entries = generation.folder, len(generation.log)
        self.slots = SlotAllocator(self.num_clients)
        self.slots.replay(generation.log)
        self.slots.keep(self.rounds())
        self._hash = hash_of(self.layout)
        self._hash.update(generation.log.tobytes())
        with writing(self._log_path):
            os.truncate(self._log_path, self._entries * ENTRY.itemsize)
        self._remove_others()
        self._open()

    def begin_anew(self) -> None:
        """Forgets all rows; generations that checkpoints name stay where they are."""
        self.close()
        self.slots, self._hash, self._entries, self._folder = (
            SlotAllocator(self.num_clients),
            hash_of(self.layout),
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

    def _begin(self) -> None:
        """Makes a folder with a number of its own, unless there is one."""
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
        """Removes the folders of which no checkpoint is there."""
        kept = set(self.rounds())
        for number in _numbers(self.root):
            folder = self.root / str(number)
            if folder != self._folder and not kept & _rounds_of(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _numbers(root: pathlib.Path) -> list[int]:
    return [int(path.name) for path in root.iterdir() if path.name.isdecimal()]


def _rounds_of(folder: pathlib.Path) -> set[int]:
    """The rounds of all generations that a folder's log has ended."""
    try:
        log = np.fromfile(folder / "log", ENTRY)
    except OSError:
        return set()
    return set(log["slot"][log["client"] == END].tolist())
