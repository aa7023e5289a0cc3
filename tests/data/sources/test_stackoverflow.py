"""Stack Overflow: word ids by rank, chosen users and test examples."""

import sqlite3

import numpy as np

from fedwin import data
from tests.data.files import refused, tarred, write_both

COUNTS = "stackoverflow.word_count"
OPTIONS = "stackoverflow:users=12,tests=7,vocabulary_size=4,length=5"
USERS = {b"%08d" % (k * 37 % 101): [b"the code", b"to the unknown a a a", b"a"][: 1 + k % 3] for k in range(12)}
TESTS = {b"9%07d" % (k * 5 % 7): [b"code to %d" % i for i in range(k + 1)] for k in range(5)}


def write(folder):
    tokens = lambda held: {client: {"tokens": np.array(listed, object)} for client, listed in held.items()}
    write_both(folder, "stackoverflow", tokens(USERS), tokens(TESTS))
    (folder / COUNTS).write_bytes(b"the 9\nto 8\na 7\ncode 6\nrare 1\n")


def test_words_are_numbered_by_rank(tmp_path):
    write(tmp_path)
    tarred(tmp_path / f"{COUNTS}.tar.bz2", {COUNTS: (tmp_path / COUNTS).read_bytes()}, "w:bz2")
    (tmp_path / COUNTS).unlink()
    dataset = data.load(OPTIONS, tmp_path)
    assert dataset.num_classes == 8 and dataset.natural.num_clients == 12 and len(dataset.test["y"]) == 7
    k = next(i for i, name in enumerate(dataset.natural.ids) if len(USERS[name]) == 3)
    rows = dataset.natural.client(k)
    # BOS 1, EOS 2, the 3, to 4, a 5, code 6, others 7.
    assert dataset.train["x"][rows].tolist() == [[1, 3, 6, 0, 0], [1, 4, 3, 7, 5], [1, 5, 0, 0, 0]]
    assert dataset.train["y"][rows].tolist() == [[3, 6, 2, 0, 0], [4, 3, 7, 5, 5], [5, 2, 0, 0, 0]]


def test_users_are_chosen_by_the_seed_and_tests_do_not_depend_on_them(tmp_path):
    write(tmp_path)
    whole = data.load(OPTIONS, tmp_path)
    fewer, again, other = (data.load(OPTIONS.replace("=12", "=5") + f",seed={seed}", tmp_path) for seed in (0, 0, 1))
    assert fewer.natural.ids.tolist() == again.natural.ids.tolist() == whole.natural.ids[:5].tolist()
    assert fewer.natural.ids.tolist() != other.natural.ids.tolist()
    np.testing.assert_array_equal(fewer.test["x"], whole.test["x"])


def test_what_is_missing_is_named(tmp_path):
    refused("stackoverflow: found no", data.load, OPTIONS, tmp_path)
    write(tmp_path)
    for users, size, message in ((13, 4, "users=13, but the file has only 12"), (2, 6, "only 5 words")):
        refused(message, data.load, f"stackoverflow:users={users},vocabulary_size={size}", tmp_path)
    with sqlite3.connect(tmp_path / "stackoverflow_train.sqlite") as connection:
        connection.execute("UPDATE federated_data SET num_examples = 9 WHERE client_id = ?", (b"00000037",))
    refused("client '00000037': 2 sentences, but 9 according to the index", data.load, OPTIONS, tmp_path)
    (tmp_path / "stackoverflow.word_count").write_text("the 5\nthe 4\n")
    refused("a word occurs twice", data.load, "stackoverflow:users=1,vocabulary_size=2", tmp_path)
    (tmp_path / "stackoverflow.word_count").unlink()
    refused("found no stackoverflow.word_count", data.load, OPTIONS, tmp_path)
    (tmp_path / "stackoverflow.word_count").write_text("the 5\n")
    for name in ("train", "test"):
        (tmp_path / f"stackoverflow_{name}.sqlite").unlink()
    write_both(tmp_path, "stackoverflow", {b"me": {"title": np.array([b"x"], object)}})
    refused("client 'me': no 'tokens', only title", data.load, "stackoverflow:users=1,vocabulary_size=1", tmp_path)
