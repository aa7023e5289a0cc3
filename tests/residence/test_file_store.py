"""File store: snapshots stay intact through writes, kills and resumes."""

import errno
import os
import shutil

import jax
import numpy as np
import pytest

from fedwin.errors import StorageError, UserError
from fedwin.residence.file_store import ENTRY, FileStore, Snapshot
from fedwin.residence.record_store import row_layout

CLIENTS = 30
SHAPES = {
    "flag": jax.ShapeDtypeStruct((), np.bool_),
    "none": jax.ShapeDtypeStruct((0,), np.float32),
    "w": jax.ShapeDtypeStruct((3, 2), np.float32),
}


def store(root, rounds) -> FileStore:
    return FileStore(root, row_layout(SHAPES), CLIENTS, lambda: rounds)


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
        self.manifests: dict[int, tuple] = {}  # round -> (manifest, client -> value): the checkpoints that are there
        self.now: dict[int, float] = {}
        self.round = 0
        self.file = store(root, self.manifests)

    def write(self):
        clients = np.sort(self.rng.choice(CLIENTS, self.rng.integers(1, 8), replace=False))
        values = self.value + 1 + np.arange(len(clients))
        self.value = int(values[-1])
        self.file.write(clients, rows(values))
        self.now |= dict(zip(clients.tolist(), values.tolist(), strict=True))

    def save(self, committed: bool = True):
        self.round += 1
        manifest = self.file.commit(self.round)
        if not committed:  # killed before the checkpoint was there
            return self.resume()
        self.manifests[self.round] = manifest, dict(self.now)
        for round in sorted(self.manifests)[:-2]:
            if round % 5:  # the newest two stay, and every fifth
                del self.manifests[round]
        self.file.reclaim()

    def resume(self):
        """Kills the process; the next one resumes from the newest checkpoint, or an older one."""
        self.file.close()
        if len(self.manifests) > 1 and self.rng.random() < 0.3:
            del self.manifests[max(self.manifests)]
        self.file = store(self.root, self.manifests)
        self.round = max(self.manifests, default=0)
        manifest, now = self.manifests.get(self.round, (None, {}))
        self.now = dict(now)
        if manifest is not None:
            self.file.resume(Snapshot(self.root, manifest))

    def check(self):
        for manifest, wanted in self.manifests.values():
            assert held(Snapshot(self.root, manifest)) == wanted
        clients = np.array(sorted(self.now), int)
        assert self.file.contains(np.arange(CLIENTS)).tolist() == [k in self.now for k in range(CLIENTS)]
        found = self.file.layout.blank(len(clients))
        self.file.read(clients, found, np.arange(len(clients)))
        assert found[2][:, 0, 0].tolist() == [self.now[k] for k in clients]


@pytest.mark.parametrize("seed", range(4))
def test_every_kept_checkpoint_has_its_rows_after_any_history(tmp_path, seed):
    world = World(tmp_path / "rows", seed)
    for _ in range(120):
        act = world.rng.choice(4, p=(0.5, 0.35, 0.1, 0.05))
        (world.write, world.save, world.resume, lambda: world.save(committed=False))[act]()
        world.check()
    assert len(world.manifests) > 3 and world.round > 15


def test_room_is_used_again_and_a_checkpoint_costs_what_changed(tmp_path):
    kept: list[int] = []
    file = store(tmp_path / "rows", kept)
    file.write(np.arange(CLIENTS), rows(np.arange(CLIENTS)))
    for round in range(60):
        before = (tmp_path / "rows" / "0" / "log").stat().st_size if round else 0
        file.write(np.array([round % CLIENTS]), rows([1000 + round]))
        file.write(np.array([round % CLIENTS]), rows([2000 + round]))
        file.commit(round)
        kept[:] = [*kept, round][-2:]
        file.reclaim()
        grown = (tmp_path / "rows" / "0" / "log").stat().st_size - before
        assert grown == (2 if round else CLIENTS + 1) * ENTRY.itemsize
    assert (tmp_path / "rows" / "0" / "data").stat().st_size <= (CLIENTS + 3) * file.layout.nbytes
    file.close()


def test_rows_of_another_run_get_a_separate_folder_and_unreferenced_folders_are_removed(tmp_path):
    kept: list[int] = []
    file = store(tmp_path / "rows", kept)
    file.write(np.array([1]), rows([5]))
    first = file.commit(0)
    kept.append(0)
    file.clear()
    file.write(np.array([2]), rows([6]))
    second = file.commit(1)
    assert held(Snapshot(tmp_path / "rows", first)) == {1: 5} and held(Snapshot(tmp_path / "rows", second)) == {2: 6}
    kept[:] = [1]
    file.resume(Snapshot(tmp_path / "rows", second))
    assert [path.name for path in (tmp_path / "rows").iterdir()] == ["1"]
    file.close()


@pytest.fixture
def saved(tmp_path):
    file = store(tmp_path / "rows", [0])
    file.write(np.array([3, 4]), rows([7, 8]))
    manifest = file.commit(0)
    file.close()
    return tmp_path / "rows", manifest


@pytest.mark.parametrize("name, at", [("log", 3), ("log", -1), ("layout", 9), ("data", None)])
def test_damage_is_found_before_a_row_is_used(saved, name, at):
    root, manifest = saved
    path = root / "0" / name
    data = bytearray(path.read_bytes())
    if at is None:
        del data[-1:]
    else:
        data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="damaged|can't be read") as caught:
        Snapshot(root, manifest)
    assert "\n" not in str(caught.value)


def test_a_row_that_was_altered_is_named(saved):
    root, manifest = saved
    data = bytearray((root / "0" / "data").read_bytes())
    data[-3] ^= 4
    (root / "0" / "data").write_bytes(data)
    snapshot = Snapshot(root, manifest)
    snapshot.read(np.array([0]))
    file = store(root, [0])
    file.resume(snapshot)
    for read in (lambda: snapshot.read(np.array([1])), lambda: file.read([4], file.layout.blank(1), [0])):
        with pytest.raises(UserError, match="row of client 4"):
            read()
    file.close()


def test_missing_rows_are_one_line(saved):
    root, manifest = saved
    shutil.rmtree(root)
    with pytest.raises(UserError, match="can't be read"):
        Snapshot(root, manifest)


def test_a_full_disk_is_one_line_and_the_last_checkpoint_stays(saved, monkeypatch):
    root, manifest = saved
    file = store(root, [0])
    file.resume(Snapshot(root, manifest))
    file.write(np.array([3, 5]), rows([9, 9]))

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="make room"):
        file.commit(1)
    file.close()
    assert held(Snapshot(root, manifest)) == {3: 7, 4: 8}
