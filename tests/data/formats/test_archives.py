"""Reading compressed files, archives with unrelated members, shards, and files next to damaged ones."""

import bz2
import gzip
import io
import lzma
import sqlite3
import tarfile
import tempfile
import zipfile

import numpy as np
import pytest

from fedwin import data
from fedwin.data.formats import files, forms
from fedwin.errors import UserError
from tests.data.files import objects, write_fedjax_sqlite, write_tff_sqlite
from tests.data.idx_files import write
from tests.data.image_files import picture, write_fedbn, write_landmarks, write_pacs

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".lzma": lambda blob: lzma.compress(blob, format=lzma.FORMAT_ALONE),
}


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path, monkeypatch):
    """Temporary copies go to a folder that must be empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not list(folder.iterdir())


def clients_of(name: str) -> dict:
    """client -> features of a small data set."""
    if name == "femnist":
        return {"f0001_00": {"pixels": np.ones((2, 28, 28), np.float32), "label": np.array([3, 4])}}
    if name == "cifar100_pam":
        keys = {"label": np.array([7, 8]), "coarse_label": np.array([1, 2])}
        return {"me": {"image": np.arange(2 * 3072).reshape(2, 32, 32, 3).astype(np.uint8), **keys}}
    if name == "shakespeare":
        return {"ROLE": {"snippets": objects([b"To be", b"or not"])}}
    return {"me": {"tokens": objects([b"the code", b"code"])}, "you": {"tokens": objects([b"the"])}}


# data set -> (FedJAX's files, TFF's HDF5 files, TFF's archive)
PAIRS = {
    "femnist": ("federated_emnist_{}.sqlite", "fed_emnist_{}.h5", "fed_emnist.tar.bz2"),
    "cifar100_pam": ("federated_cifar100_{}.sqlite", "fed_cifar100_{}.h5", "fed_cifar100.tar.bz2"),
    "shakespeare": ("shakespeare_{}.sqlite", "shakespeare_{}.h5", "shakespeare.tar.bz2"),
    "stackoverflow": ("stackoverflow_{}.sqlite", "stackoverflow_{}.h5", "stackoverflow.tar.bz2"),
}


def write_pair(folder, name, form) -> list:
    pattern = PAIRS[name][form == "hdf5"]
    paths = [folder / pattern.format(side) for side in ("train", "test")]
    for path in paths:
        if form == "fedjax":
            write_fedjax_sqlite(path, {client.encode(): held for client, held in clients_of(name).items()})
            continue
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            for client, held in clients_of(name).items():
                for key, value in held.items():
                    kind = h5py.special_dtype(vlen=bytes) if value.dtype == object else None
                    file.create_dataset(f"examples/{client}/{key}", data=value, dtype=kind)
    if name == "stackoverflow":
        (folder / "stackoverflow.word_count").write_text("the 9\ncode 5\n")
    return paths


def load(name, folder):
    return data.load(name + (":users=2,tests=2,vocabulary_size=2,length=3" * (name == "stackoverflow")), folder)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("form", ["fedjax", "hdf5"])
@pytest.mark.parametrize("suffix", [*COMPRESS, "archive"])
def test_pairs_plain_compressed_and_in_their_archive(tmp_path, name, form, suffix):
    if form == "fedjax" and suffix == "archive":
        pytest.skip("FedJAX distributes no archives")
    paths = write_pair(tmp_path, name, form)
    expected = load(name, tmp_path)
    if suffix == "archive":
        with tarfile.open(tmp_path / PAIRS[name][2], "w:bz2") as archive:
            for path in paths:
                archive.add(path, path.name)
                path.unlink()
    elif suffix:
        for path in paths:
            path.with_name(path.name + suffix).write_bytes(COMPRESS[suffix](path.read_bytes()))
            path.unlink()
    found = load(name, tmp_path)
    for split in ("train", "test"):
        for key in ("x", "y"):
            np.testing.assert_array_equal(getattr(found, split)[key], getattr(expected, split)[key])
    assert found.natural.ids.tolist() == expected.natural.ids.tolist()
    if suffix == "archive":
        found = load(name, tmp_path / PAIRS[name][2])  # the archive itself as data_dir
        np.testing.assert_array_equal(found.train["x"], expected.train["x"])


def test_what_is_wrong_in_a_copy_is_said_of_the_original(tmp_path):
    bad = {b"w": {"pixels": np.ones((1, 28, 28), np.float32), "label": np.array([99])}}
    for side in ("train", "test"):
        write_fedjax_sqlite(tmp_path / "plain.sqlite", bad)
        path = tmp_path / f"federated_emnist_{side}.sqlite.xz"
        path.write_bytes(lzma.compress((tmp_path / "plain.sqlite").read_bytes()))
        (tmp_path / "plain.sqlite").unlink()
    with pytest.raises(
        UserError, match=f"^{tmp_path}/federated_emnist_train.sqlite.xz, client 'w': record 0: label 99"
    ):
        data.load("femnist", tmp_path)
    path = tmp_path / "federated_emnist_test.sqlite.xz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UserError, match=f"^{path}: the compressed file is truncated or damaged"):
        data.load("femnist", tmp_path)


def test_archives_that_are_cut_short_or_hold_something_else(tmp_path):
    paths = write_pair(tmp_path, "femnist", "hdf5")
    archive = tmp_path / "fed_emnist.tar.bz2"
    with tarfile.open(archive, "w:bz2") as packed:
        packed.add(paths[0], paths[0].name)
    for path in paths:
        path.unlink()
    with pytest.raises(UserError, match="fed_emnist.tar.bz2: it contains no fed_emnist_test.h5"):
        data.load("femnist", tmp_path)
    archive.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(UserError, match="fed_emnist.tar.bz2: (not a readable tar|the compressed file is trunc)"):
        data.load("femnist", tmp_path)


def test_a_full_temporary_folder_is_not_called_a_truncated_file(tmp_path, monkeypatch):
    write_tff_sqlite(tmp_path / "emnist_all.sqlite.lzma", {"all_train": {}}, compress=True)

    class Full(io.BytesIO):
        def write(self, piece):
            raise OSError(28, "No space left on device")

    real = open
    fake = lambda path, mode="r", *rest: Full() if mode == "wb" else real(path, mode, *rest)
    monkeypatch.setattr(forms, "open", fake, raising=False)
    with pytest.raises(UserError, match="emnist_all.sqlite.lzma: cannot be unpacked to .*No space left.*TMPDIR"):
        data.load("femnist", tmp_path)


def test_a_truncated_hdf5_file_is_named(tmp_path):
    paths = write_pair(tmp_path, "femnist", "hdf5")
    paths[0].write_bytes(paths[0].read_bytes()[:-600])
    with pytest.raises(UserError, match="fed_emnist_train.h5"):
        data.load("femnist", tmp_path)
    paths[0].unlink()
    sqlite3.connect(tmp_path / "federated_emnist_train.sqlite").close()
    sqlite3.connect(tmp_path / "federated_emnist_test.sqlite").close()
    with pytest.raises(UserError, match="federated_emnist_train.sqlite: not a readable federated SQLite file"):
        data.load("femnist", tmp_path)


def test_damage_inside_hdf5_files_is_named(tmp_path):
    path = write_pair(tmp_path, "femnist", "hdf5")[0]
    blob = path.read_bytes()
    for text in (b"HEAP", b"TREE", b"SNOD"):  # names, tree and leaves of HDF5's groups
        path.write_bytes(blob.replace(text, b"XXXX"))
        with pytest.raises(UserError, match="fed_emnist_train.h5"):
            data.load("femnist", tmp_path)


def damage(path, text: bytes):
    """Flips a byte of what a zip archive stores of one member."""
    blob = bytearray(path.read_bytes())
    blob[blob.index(text)] ^= 1
    path.write_bytes(bytes(blob))


def test_other_members_of_an_archive_are_not_read(tmp_path):
    write(tmp_path / "gzip", "emnist-letters-", "test", n=(3, 2), labels=1)
    written = write(tmp_path / "gzip", "emnist-digits-", "test", n=(3, 2), labels=1)
    assert written
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        for file in sorted((tmp_path / "gzip").iterdir()):
            archive.write(file, f"gzip/{file.name}")
        archive.writestr("gzip/emnist-mnist-train-images-idx3-ubyte.gz", b"what only this one holds")
    for file in (tmp_path / "gzip").iterdir():
        file.unlink()
    damage(tmp_path / "gzip.zip", b"what only this one holds")
    assert len(data.load("emnist:split=digits", tmp_path).train["y"]) == 3
    with pytest.raises(UserError, match="gzip.zip: not a readable"):
        files.members(tmp_path / "gzip.zip")
    wanted = "emnist-digits-test-labels-idx1-ubyte"
    assert list(files.entries(tmp_path / "gzip.zip", wanted.__eq__)) == [wanted]


def test_a_broken_archive_of_something_else_does_not_stop_the_load(tmp_path):
    write(tmp_path / "gzip", "emnist-digits-", "test", n=(3, 2))
    (tmp_path / "a.zip").write_bytes(b"PK\3\4 no archive")
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        for file in (tmp_path / "gzip").iterdir():
            archive.write(file, f"gzip/{file.name}")
            file.unlink()
    assert len(data.load("emnist:split=digits", tmp_path).train["y"]) == 3
    with pytest.raises(UserError, match="a.zip: not a readable"):  # nothing else is there: perhaps this was it
        data.load("emnist", tmp_path)
    (tmp_path / "x").mkdir()
    write_landmarks(tmp_path / "x")
    (tmp_path / "x" / "a.zip").write_bytes(b"PK\3\4 no archive")
    with zipfile.ZipFile(tmp_path / "x" / "b.zip", "w") as archive:
        for name in ("federated_train.csv", "test.csv"):
            archive.write(tmp_path / "x" / name, name)
            (tmp_path / "x" / name).unlink()
    with pytest.warns(UserWarning, match="a.zip: not a readable .* is ignored"):
        assert len(data.load("landmarks:size=8,resize=8", tmp_path / "x").train["y"]) == 4


def test_only_the_domains_asked_for_are_decoded_of_fedbns_archive(tmp_path):
    write_fedbn(tmp_path, ("MNIST", "USPS"))
    place = tmp_path / "only" / "digit_dataset.zip"
    place.parent.mkdir()
    with zipfile.ZipFile(place, "w") as archive:
        for file in (tmp_path / "digit_dataset").glob("**/*.pkl"):
            archive.write(file, file.relative_to(tmp_path))
        archive.writestr("digit_dataset/USPS/train.pkl", b"what only this one holds")
        archive.writestr("digit_dataset/SVHN/test.pkl", b"what that one holds")
    damage(place, b"what only this one holds")
    damage(place, b"what that one holds")
    assert len(data.load("digit5:domains=mnist+usps", place).train["y"]) == 80


@pytest.mark.parametrize("name", ["PACS.zip", "pacs_data.ZIP", "my-Pacs.tgz"])
def test_pacs_in_its_archive(tmp_path, name):
    write_pacs(tmp_path / "x", 2)
    expected = data.load("pacs:size=8,resize=8", tmp_path / "x")
    place = tmp_path / "y" / name
    place.parent.mkdir()
    if name.endswith("tgz"):
        with tarfile.open(place, "w:gz") as archive:
            archive.add(tmp_path / "x" / "PACS", "PACS")
    else:
        with zipfile.ZipFile(place, "w") as archive:
            for file in (tmp_path / "x").glob("**/*.png"):
                archive.write(file, file.relative_to(tmp_path / "x"))
    dataset = data.load("pacs:size=8,resize=8", place.parent)
    np.testing.assert_array_equal(np.asarray(dataset.train["x"]), np.asarray(expected.train["x"]))


def test_landmarks_in_several_shards(tmp_path):
    write_landmarks(tmp_path)
    expected = np.asarray(data.load("landmarks:size=8,resize=8", tmp_path).train["x"])
    for number, names in enumerate((["a/id0.jpg", "a/id1.jpg"], ["a/id2.jpg", "a/id3.jpg", "t.jpg"])):
        with tarfile.open(tmp_path / f"images_{number:03d}.tar", "w") as archive:
            for name in names:
                archive.add(tmp_path / "images" / name, f"0/0/{name}")
    both = data.load("landmarks:size=8,resize=8", tmp_path)  # unpacked ones come first, so that no name has two files
    assert all(isinstance(item, str) for item in both.train["x"].items)
    for path in (tmp_path / "images").glob("**/*.jpg"):
        path.unlink()
    dataset = data.load("landmarks:size=8,resize=8", tmp_path)
    np.testing.assert_array_equal(np.asarray(dataset.train["x"]), expected)
    with tarfile.open(tmp_path / "images_002.tar", "w") as archive:
        entry = tarfile.TarInfo("1/id2.jpg")
        entry.size = len(picture((0, 0, 0)))
        archive.addfile(entry, io.BytesIO(picture((0, 0, 0))))
    with pytest.raises(UserError, match="image 'id2' .record 3. names 2 files, .*images_001.tar.*images_002.tar"):
        data.load("landmarks", tmp_path)
