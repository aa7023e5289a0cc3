"""The file that a seed's client rows live in while it trains; how it is laid out says residence.generations."""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable

import numpy as np

from fedwin.residence.generations import (
    END,
    ENTRY,
    Generation,
    Layout,
    Mark,
    check_of,
    damaged,
    hash_of,
    parts_of,
    read_record,
)
from fedwin.residence.slots import Slots
from fedwin.runs.storage import Growing, replace_text, writing


class RowFile:
    """Rows of the clients that have taken part, in a folder of their own; made at the first write.

    Args:
      root: the folders are below it; whoever writes holds the lock of the run.
      layout: of a row.
      num_clients: K.
      rounds: returns the rounds whose checkpoints are there.
    """

    def __init__(self, root: pathlib.Path, layout: Layout, num_clients: int, rounds: Callable[[], Iterable[int]]):
        self.root, self.layout, self.num_clients, self.rounds = root, layout, num_clients, rounds
        self.slots = Slots(num_clients)
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

    def commit(self, round: int) -> Mark:
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
        return Mark(np.int32(self.num_clients), number, np.int64(self._entries), digest)

    def keep(self) -> None:
        """Frees what no checkpoint needs that is there."""
        self.slots.keep(self.rounds())

    def owns(self, generation: Generation) -> bool:
        """Whether a generation is one of this seed's."""
        return generation.folder.parent == self.root and generation.layout == self.layout

    def begin_with(self, generation: Generation) -> None:
        """Goes on from one of this seed's generations; what came after it is forgotten."""
        self.close()
        self._folder, self._entries = generation.folder, len(generation.log)
        self.slots = Slots(self.num_clients)
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
        self.slots, self._hash, self._entries, self._folder = Slots(self.num_clients), hash_of(self.layout), 0, None

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
        self._log = self._files.enter_context(contextlib.closing(Growing(self._log_path)))

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
