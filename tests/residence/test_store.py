"""File store: snapshots stay intact through writes, kills and resumes."""

import os

import jax
import numpy as np
import pytest

from fedwin.errors import StorageError
from fedwin.residence.store import FileStore, MemoryStore, Snapshot, record_layout
from tests.refusals import disk_is_full, refused

CLIENTS = 30
SHAPES = {
    "flag": jax.ShapeDtypeStruct((), np.bool_),
    "none": jax.ShapeDtypeStruct((0,), np.float32),
    "w": jax.ShapeDtypeStruct((3, 2), np.float32),
}


def store(root, rounds) -> FileStore:
    return FileStore(root, record_layout(SHAPES), CLIENTS, lambda: rounds)


def rows(values) -> list[np.ndarray]:
    values = np.asarray(values, np.float32)
    w = np.broadcast_to(values[:, None, None], (len(values), 3, 2)).copy()
    return [values % 2 == 1, np.zeros((len(values), 0), np.float32), w]


def held(snapshot: Snapshot) -> dict[int, float]:
    """Returns client -> the value that its row was made of."""
    flags, _, w = snapshot.read(np.arange(len(snapshot.ids)))
    assert (w == w[:, :1, :1]).all() and (flags == (w[:, 0, 0] % 2 == 1)).all()
    return dict(zip(snapshot.ids.tolist(), w[:, 0, 0].tolist(), strict=True))


class World:
    """A file, what its checkpoints should hold, and what the run has changed since."""

    def __init__(self, root, seed: int):
        self.root, self.rng, self.value = root, np.random.default_rng(seed), 0
        self.references: dict[int, tuple] = {}  # round -> (reference, client -> value): the checkpoints that are there
        self.now: dict[int, float] = {}
        self.round = 0
        self.file = store(root, self.references)

    def write(self):
        clients = np.sort(self.rng.choice(CLIENTS, self.rng.integers(1, 8), replace=False))
        values = self.value + 1 + np.arange(len(clients))
        self.value = int(values[-1])
        self.file.write(clients, rows(values))
        self.now |= dict(zip(clients.tolist(), values.tolist(), strict=True))

    def save(self, committed: bool = True):
        self.round += 1
        reference = self.file.commit(self.round)
        if not committed:  # killed before the checkpoint was there
            return self.resume()
        self.references[self.round] = reference, dict(self.now)
        for round in sorted(self.references)[:-2]:
            if round % 5:  # the newest two stay, and every fifth
                del self.references[round]
        self.file.reclaim()

    def resume(self):
        """Kills the process; the next one resumes from the newest checkpoint, or an older one."""
        self.file.close()
        if len(self.references) > 1 and self.rng.random() < 0.3:
            del self.references[max(self.references)]
        self.file = store(self.root, self.references)
        self.round = max(self.references, default=0)
        reference, now = self.references.get(self.round, (None, {}))
        self.now = dict(now)
        if reference is not None:
            self.file.resume(Snapshot(self.root, reference))

    def check(self):
        for reference, wanted in self.references.values():
            assert held(Snapshot(self.root, reference)) == wanted
        clients = np.array(sorted(self.now), int)
        assert self.file.contains(np.arange(CLIENTS)).tolist() == [k in self.now for k in range(CLIENTS)]
        found = self.file.layout.blank(len(clients))
        self.file.read(clients, found, np.arange(len(clients)))
        assert found[2][:, 0, 0].tolist() == [self.now[k] for k in clients]


@pytest.mark.parametrize("seed", range(4))
def test_every_kept_checkpoint_has_its_rows_after_any_history(tmp_path, seed):
    world = World(tmp_path / "rows", seed)
    for _ in range(80):
        act = world.rng.choice(4, p=(0.5, 0.35, 0.1, 0.05))
        (world.write, world.save, world.resume, lambda: world.save(committed=False))[act]()
        world.check()
    assert len(world.references) > 3 and world.round > 9


def indices(root) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name != "data")


def test_room_is_used_again_and_the_index_of_a_removed_checkpoint_goes(tmp_path):
    kept: list[int] = []
    file = store(tmp_path / "rows", kept)
    file.write(np.arange(CLIENTS), rows(np.arange(CLIENTS)))
    for round in range(30):
        file.write(np.array([round % CLIENTS]), rows([1000 + round]))
        file.write(np.array([round % CLIENTS]), rows([2000 + round]))
        file.commit(round)
        kept[:] = [*kept, round][-2:]
        file.reclaim()
    assert [int(name.partition("-")[0]) for name in indices(tmp_path / "rows")] == kept
    assert (tmp_path / "rows" / "data").stat().st_size <= (CLIENTS + 3) * file.layout.nbytes
    file.close()


def test_a_store_that_starts_again_keeps_the_snapshots_of_checkpoints(tmp_path):
    kept: list[int] = []
    file = store(tmp_path / "rows", kept)
    file.write(np.array([1]), rows([5]))
    first = file.commit(0)
    kept.append(0)
    assert not file.resume(None) and not file.contains(np.arange(CLIENTS)).any()
    file.write(np.array([2]), rows([6]))
    second = file.commit(1)
    assert held(Snapshot(tmp_path / "rows", first)) == {1: 5} and held(Snapshot(tmp_path / "rows", second)) == {2: 6}
    kept[:] = [1]
    assert file.resume(Snapshot(tmp_path / "rows", second)) and indices(tmp_path / "rows") == [second.index]
    file.close()


def test_memory_holds_what_was_written():
    memory = MemoryStore(record_layout(SHAPES), CLIENTS)
    memory.write(np.array([7, 3]), rows([1, 2]))
    ids, (_, _, w) = memory.held()
    assert ids.tolist() == [3, 7] and np.asarray(w)[:, 0, 0].tolist() == [2, 1] and memory.commit(0) is None
    found = memory.layout.blank(3)
    memory.read(np.array([7]), found, np.array([2]))
    assert found[2][:, 0, 0].tolist() == [0, 0, 1]
    assert memory.contains(np.array([2, 3])).tolist() == [False, True]
    # 16 TiB, which the system would not reserve: only what was written takes memory.
    memory = MemoryStore(record_layout(jax.ShapeDtypeStruct((1 << 22,), np.float32)), 1 << 20)
    memory.write(np.array([5]), [np.ones((1, 1 << 22), np.float32)])
    assert memory.held()[0].tolist() == [5] and memory.fields[0][-1, -1] == 0


@pytest.fixture
def saved(tmp_path):
    file = store(tmp_path / "rows", [0])
    file.write(np.array([3, 4]), rows([7, 8]))
    reference = file.commit(0)
    file.close()
    return tmp_path / "rows", reference


@pytest.mark.parametrize("name, at", [("index", 3), ("index", -1), ("data", None)])
def test_damage_is_found_before_a_row_is_used(saved, name, at):
    root, reference = saved
    path = root / (reference.index if name == "index" else name)
    data = bytearray(path.read_bytes())
    if at is None:
        del data[-1:]
    else:
        data[at] ^= 1
    path.write_bytes(data)
    refused("damaged|can't be read", Snapshot, root, reference)


def test_a_row_that_was_altered_is_named(saved):
    root, reference = saved
    data = bytearray((root / "data").read_bytes())
    data[-3] ^= 4
    (root / "data").write_bytes(data)
    snapshot = Snapshot(root, reference)
    snapshot.read(np.array([0]))
    file = store(root, [0])
    file.resume(snapshot)
    for read in (lambda: snapshot.read(np.array([1])), lambda: file.read([4], file.layout.blank(1), [0])):
        refused("record 4 differs", read)
    file.close()


def test_a_full_disk_is_one_line_and_the_last_checkpoint_stays(saved, monkeypatch):
    root, reference = saved
    file = store(root, [0])
    file.resume(Snapshot(root, reference))
    file.write(np.array([3, 5]), rows([9, 9]))
    monkeypatch.setattr(os, "fsync", disk_is_full)
    refused("make room", file.commit, 1, error=StorageError)
    file.close()
    assert held(Snapshot(root, reference)) == {3: 7, 4: 8}
