"""FEMNIST, CIFAR-100 PAM, Shakespeare and Stack Overflow from every format they come in."""

import tarfile

import fedjax
import numpy as np
import pytest

from fedwin import data
from fedwin.data.sources import shakespeare
from fedwin.data.sources.cifar_names import PARENT
from fedwin.errors import UserError

from .formats import objects, write_fedjax_sqlite, write_leaf, write_tff_sqlite

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")

WRITERS = {"f2101_00": 3, "f0007_01": 2, "f2600_12": 4}


def characters(sizes=WRITERS, seed=0):
    """client -> (bytes of ink [n, 784], labels); files hold 1 - ink / 255."""
    rng = np.random.default_rng(seed)
    return {client: (rng.integers(0, 256, (n, 784), np.uint8), rng.integers(0, 62, n)) for client, n in sizes.items()}


def paper(ink) -> np.ndarray:
    return (1 - ink.astype(np.float32) / 255).astype(np.float32)


def write_femnist(folder, form, train, test):
    if form == "fedjax":
        for side, held in (("train", train), ("test", test)):
            content = {
                f"{k:016x}:{client}".encode(): {
                    "pixels": paper(ink).reshape(-1, 28, 28),
                    "label": label.astype(np.int32),
                }
                for k, (client, (ink, label)) in enumerate(held.items())
            }
            write_fedjax_sqlite(folder / f"federated_emnist_{side}.sqlite", content)
    elif form in ("tff", "tff_lzma"):
        splits = {
            f"all_{side}": {
                client: [{"pixels": paper(row), "label": np.array([y])} for row, y in zip(ink, label)]
                for client, (ink, label) in held.items()
            }
            for side, held in (("train", train), ("test", test))
        }
        name = "emnist_all.sqlite" + (".lzma" if form == "tff_lzma" else "")
        write_tff_sqlite(folder / name, splits, compress=form == "tff_lzma", scattered=True)
    elif form == "hdf5":
        h5py = pytest.importorskip("h5py")
        for side, held in (("train", train), ("test", test)):
            with h5py.File(folder / f"fed_emnist_{side}.h5", "w") as file:
                for client, (ink, label) in held.items():
                    file[f"examples/{client}/pixels"] = paper(ink).reshape(-1, 28, 28)
                    file[f"examples/{client}/label"] = label.astype(np.int32)
    else:
        for side, held in (("train", train), ("test", test)):
            write_leaf(
                folder / side,
                {client: (paper(ink).tolist(), label.tolist()) for client, (ink, label) in held.items()},
                2,
            )


@pytest.mark.parametrize("form", ["fedjax", "tff", "tff_lzma", "hdf5", "leaf"])
def test_femnist_is_the_same_from_every_format(tmp_path, form):
    train, test = characters(), characters(dict.fromkeys(WRITERS, 1), 1)
    write_femnist(tmp_path, form, train, test)
    dataset = data.load("femnist", tmp_path)
    part = data.deal(dataset, None, None, 0)
    assert (
        dataset.num_classes == 62
        and dataset.train["x"].dtype == np.uint8
        and dataset.train["x"].shape == (9, 28, 28, 1)
    )
    found = {}
    for k, client in enumerate(part.ids):
        name = (client.decode() if isinstance(client, bytes) else str(client)).rsplit(":", 1)[-1]
        found[name] = part.domain[k]
        ink, label = train[name]
        np.testing.assert_array_equal(dataset.train["x"][part.client(k)].reshape(-1, 784), ink)
        np.testing.assert_array_equal(dataset.train["y"][part.client(k)], label)
    assert found == {"f2101_00": 0, "f0007_01": 1, "f2600_12": 1}
    assert len(dataset.test["y"]) == 3 and dataset.test_natural.num_clients == 3


def test_femnist_digits_and_forced_forms(tmp_path):
    held = {b"f0001_00": {"pixels": np.ones((2, 28, 28), np.float32), "label": np.array([3, 4])}}
    for side in ("train", "test"):
        write_fedjax_sqlite(tmp_path / f"federated_emnist_digitsonly_{side}.sqlite", held)
    assert data.load("femnist_digits", tmp_path).train["x"].max() == 0  # all paper
    assert data.load("femnist_digits:paper=0", tmp_path).train["x"].min() == 255
    with pytest.raises(UserError, match="femnist_digits: found no"):
        data.load("femnist_digits:form=leaf", tmp_path)
    with pytest.raises(UserError, match="form=csv"):
        data.load("femnist_digits:form=csv", tmp_path)


def leaf_case(change):
    train = {client: (paper(ink).tolist(), label.tolist()) for client, (ink, label) in characters().items()}
    change(train)
    return train


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t["f0007_01"][0].pop(), "client 'f0007_01': 1 inputs for 2 labels"),
        (lambda t: t.update(f0007_01=([], [])), "f0007_01.*0 pixels|f0007_01.*no examples"),
        (lambda t: t["f2600_12"][1].__setitem__(0, 62), "label 62 is not in 0..61"),
        (lambda t: t["f2600_12"][0][0].__setitem__(5, float("nan")), "f2600_12.*NaN"),
        (lambda t: t["f2600_12"][0][0].__setitem__(5, 7.0), "f2600_12.*outside 0..1"),
        (lambda t: t["f2101_00"][0][0].pop(), "f2101_00"),
    ],
)
def test_bad_leaf_files_name_the_client(tmp_path, change, message):
    write_leaf(tmp_path / "train", leaf_case(change))
    write_leaf(tmp_path / "test", leaf_case(lambda t: None))
    with pytest.raises(UserError, match=message):
        data.load("femnist", tmp_path)


def test_a_leaf_client_in_two_files_is_refused(tmp_path):
    write_leaf(tmp_path / "train", leaf_case(lambda t: None))
    (tmp_path / "train" / "second.json.gz").write_bytes(next((tmp_path / "train").iterdir()).read_bytes())
    write_leaf(tmp_path / "test", leaf_case(lambda t: None))
    with pytest.raises(UserError, match="second.json.gz.*'f2101_00' occurs twice"):
        data.load("femnist", tmp_path)


def test_damaged_tff_files_are_named(tmp_path):
    write_tff_sqlite(
        tmp_path / "emnist_all.sqlite", {"all_train": {"f0001_00": [{"pixels": np.ones(784, np.float32)}]}}
    )
    with pytest.raises(UserError, match="emnist_all.sqlite.*'label'"):
        data.load("femnist", tmp_path)
    (tmp_path / "emnist_all.sqlite").unlink()
    write_tff_sqlite(tmp_path / "emnist_all.sqlite", {"train": {"f0001_00": [{"label": np.array([1])}]}})
    with pytest.raises(UserError, match="no split 'all_train'; it has train"):
        data.load("femnist", tmp_path)
    (tmp_path / "emnist_all.sqlite").unlink()
    write_tff_sqlite(tmp_path / "emnist_all.sqlite.lzma", {"all_train": {}}, compress=True)
    blob = (tmp_path / "emnist_all.sqlite.lzma").read_bytes()
    (tmp_path / "emnist_all.sqlite.lzma").write_bytes(blob[: len(blob) // 2])
    with pytest.raises(UserError, match="emnist_all.sqlite.lzma: .*(truncated|not a readable)"):
        data.load("femnist", tmp_path)


def pam_clients(count, seed):
    rng = np.random.default_rng(seed)
    return {
        f"client_{k}": [
            {"image": rng.integers(0, 256, (32, 32, 3)), "label": np.array([k]), "coarse_label": np.array([k % 20])}
            for _ in range(2)
        ]
        for k in range(count)
    }


@pytest.mark.parametrize("form", ["tff", "fedjax", "hdf5"])
def test_cifar100_pam_keeps_its_clients(tmp_path, form):
    held = {"train": pam_clients(4, 0), "test": pam_clients(2, 1)}
    if form == "tff":
        write_tff_sqlite(tmp_path / "cifar100.sqlite.lzma", held, compress=True)
    for side, content in held.items():
        stacked = {
            client: {key: np.stack([row[key] for row in rows]) for key in rows[0]} for client, rows in content.items()
        }
        if form == "fedjax":
            named = {
                client.encode(): {
                    "image": f["image"].astype(np.uint8),
                    "label": f["label"].reshape(-1),
                    "coarse_label": f["coarse_label"].reshape(-1),
                }
                for client, f in stacked.items()
            }
            write_fedjax_sqlite(tmp_path / f"federated_cifar100_{side}.sqlite", named)
        elif form == "hdf5":
            h5py = pytest.importorskip("h5py")
            with h5py.File(tmp_path / f"fed_cifar100_{side}.h5", "w") as file:
                for client, features in stacked.items():
                    for key, value in features.items():
                        file[f"examples/{client}/{key}"] = value
    dataset = data.load("cifar100_pam", tmp_path)
    assert dataset.natural.num_clients == 4 and dataset.test_natural.num_clients == 2
    np.testing.assert_array_equal(
        dataset.train["x"][2:4], np.stack([row["image"] for row in held["train"]["client_1"]])
    )
    assert dataset.train["y"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and dataset.train["coarse"].dtype == np.int32


def write_cifar100(folder, repeats):
    """CIFAR-100's binary files: every fine class `repeats` times in train, a fifth as often in test."""
    rng = np.random.default_rng(0)
    for side, count in (("train", repeats), ("test", repeats // 5)):
        fine = np.tile(np.arange(100), count)
        records = np.concatenate(
            [np.stack([PARENT[fine], fine], 1), rng.integers(0, 256, (len(fine), 3072))],
            1,
            dtype=np.uint8,
            casting="unsafe",
        )
        (folder / f"{side}.bin").write_bytes(records.tobytes())


def test_cifar100_pam_draws_its_clients_where_the_released_file_is_missing(tmp_path):
    write_cifar100(tmp_path, 50)
    with pytest.warns(UserWarning, match="no file with the released clients; 500 . 100 are drawn with seed 0"):
        dataset = data.load("cifar100_pam", tmp_path)
    whole = data.load("cifar100", tmp_path)
    np.testing.assert_array_equal(dataset.train["x"], whole.train["x"])
    for own, examples, clients in ((dataset.natural, whole.train, 500), (dataset.test_natural, whole.test, 100)):
        size = len(examples["y"]) // clients
        assert own.num_clients == clients and (own.sizes == size).all() and len(set(own.ids)) == clients
        assert sorted(own.order) == list(range(len(examples["y"])))
        coarse = [len(np.unique(examples["coarse"][own.client(k)])) for k in range(clients)]
        assert np.mean(coarse) < 4.5  # far from the 8 of random hands of ten
    with pytest.warns(UserWarning, match="drawn"):
        again, other = (data.load(f"cifar100_pam:seed={seed}", tmp_path) for seed in (0, 1))
    assert again.natural.order.tobytes() == dataset.natural.order.tobytes() != other.natural.order.tobytes()
    assert again.test_natural.order.tobytes() == dataset.test_natural.order.tobytes()
    # The sides are drawn independently: their first clients do not share their coarse labels.
    shares = [
        np.bincount(features["coarse"][part.client(0)], minlength=20)
        for features, part in ((dataset.train, dataset.natural), (dataset.test, dataset.test_natural))
    ]
    assert shares[0].tolist() != shares[1].tolist()
    assert data.deal(dataset, None, None, 0).num_clients == 500


SNIPPETS = {b"PLAY_A": [b"To be, or not to be", b"x"], b"PLAY_B": [b"\xc3\xa9" * 100, b""], b"PLAY_C": [b"q" * 78]}


@pytest.mark.parametrize("form", ["fedjax", "tff", "hdf5"])
def test_shakespeare_rows_are_those_of_fedjax(tmp_path, form):
    if form == "fedjax":
        for side in ("train", "test"):
            content = {client: {"snippets": objects(listed)} for client, listed in SNIPPETS.items()}
            write_fedjax_sqlite(tmp_path / f"shakespeare_{side}.sqlite", content)
    elif form == "tff":
        held = {client.decode(): [{"snippets": snippet} for snippet in listed] for client, listed in SNIPPETS.items()}
        write_tff_sqlite(tmp_path / "shakespeare.sqlite", {"train": held, "test": held})
    else:
        h5py = pytest.importorskip("h5py")
        for side in ("train", "test"):
            with h5py.File(tmp_path / f"shakespeare_{side}.h5", "w") as file:
                for client, listed in SNIPPETS.items():
                    file.create_dataset(
                        f"examples/{client.decode()}/snippets", data=listed, dtype=h5py.special_dtype(vlen=bytes)
                    )
    dataset = data.load("shakespeare", tmp_path)
    assert dataset.task == "sequence" and dataset.num_classes == 90 == fedjax.datasets.shakespeare.VOCAB_SIZE
    for k, (client, snippets) in enumerate(SNIPPETS.items()):
        expected = fedjax.datasets.shakespeare.preprocess_client(client, {"snippets": snippets}, 80)
        rows = dataset.natural.client(k)
        np.testing.assert_array_equal(dataset.train["x"][rows], expected["x"])
        np.testing.assert_array_equal(dataset.train["y"][rows], expected["y"])


def test_shakespeare_ids_and_rows():
    assert shakespeare.TABLE[ord("d")] == 3 and shakespeare.TABLE[ord("\r")] == 88 and shakespeare.TABLE[0xE9] == 89
    cut = shakespeare.rows([b"ab", b"c"], 3)  # BOS a b EOS BOS c EOS: 7 ids, 2 rows
    assert cut["x"].shape == (2, 3) and cut["y"][1, 2] == shakespeare.EOS and cut["x"][0, 0] == shakespeare.BOS
    assert shakespeare.rows([b"abcd"], 4)["y"].tolist()[1] == [2, 0, 0, 0]


def test_shakespeare_errors(tmp_path):
    with pytest.raises(UserError, match="length=0"):
        data.load("shakespeare:length=0", tmp_path)
    write_fedjax_sqlite(tmp_path / "shakespeare_train.sqlite", {b"A": {"text": objects([b"x"])}})
    write_fedjax_sqlite(tmp_path / "shakespeare_test.sqlite", {b"A": {"text": objects([b"x"])}})
    with pytest.raises(UserError, match="client 'A': no 'snippets' but text"):
        data.load("shakespeare", tmp_path)


def write_words(folder, packed):
    text = b"".join(b"%s %d\n" % (word, 100 - i) for i, word in enumerate([b"the", b"to", b"a", b"code", b"rare"]))
    (folder / "stackoverflow.word_count").write_bytes(text)
    if packed:
        with tarfile.open(folder / "stackoverflow.word_count.tar.bz2", "w:bz2") as archive:
            archive.add(folder / "stackoverflow.word_count", "stackoverflow.word_count")
        (folder / "stackoverflow.word_count").unlink()


@pytest.mark.parametrize("form", ["fedjax", "tff"])
def test_stackoverflow_numbers_words_by_rank(tmp_path, form):
    sentences = {f"{k:08d}": [b"the code", b"to the unknown a a a", b"a"][: 1 + k % 3] for k in range(12)}
    tests = {f"9{k:07d}": [b"code"] * (k + 1) for k in range(5)}
    for side, held in (("train", sentences), ("test", tests)):
        if form == "fedjax":
            content = {client.encode(): {"tokens": objects(listed)} for client, listed in held.items()}
            write_fedjax_sqlite(tmp_path / f"stackoverflow_{side}.sqlite", content)
    if form == "tff":
        as_rows = lambda held: {
            client: [{"tokens": s, "score": np.array([1])} for s in listed] for client, listed in held.items()
        }
        write_tff_sqlite(tmp_path / "stackoverflow.sqlite", {"train": as_rows(sentences), "test": as_rows(tests)})
    write_words(tmp_path, packed=form == "tff")
    options = "users=12,tests=7,vocabulary_size=4,length=5"
    dataset = data.load(f"stackoverflow:{options}", tmp_path)
    assert dataset.num_classes == 8 and dataset.natural.num_clients == 12 and len(dataset.test["y"]) == 7
    names = [c.decode() if isinstance(c, bytes) else str(c) for c in dataset.natural.ids]
    k = next(i for i, name in enumerate(names) if len(sentences[name]) == 3)
    rows = dataset.natural.client(k)
    # BOS 1, EOS 2, the 3, to 4, a 5, code 6, others 7.
    assert dataset.train["x"][rows].tolist() == [[1, 3, 6, 0, 0], [1, 4, 3, 7, 5], [1, 5, 0, 0, 0]]
    assert dataset.train["y"][rows].tolist() == [[3, 6, 2, 0, 0], [4, 3, 7, 5, 5], [5, 2, 0, 0, 0]]
    fewer = data.load("stackoverflow:users=5,tests=7,vocabulary_size=4,length=5", tmp_path)
    again = data.load("stackoverflow:users=5,tests=7,vocabulary_size=4,length=5", tmp_path)
    assert fewer.natural.num_clients == 5 and fewer.natural.ids.tolist() == again.natural.ids.tolist()
    np.testing.assert_array_equal(fewer.test["x"], dataset.test["x"])
    for bad, message in (("users=13,tests=1,vocabulary_size=4", "13 users"), ("users=2,vocabulary_size=6", "5 words")):
        with pytest.raises(UserError, match=message):
            data.load(f"stackoverflow:{bad}", tmp_path)
