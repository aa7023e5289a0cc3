"""Stack Overflow: the same clients, rows and test examples from every released form."""

import sqlite3

import h5py
import numpy as np
import pytest

from fedwin import data
from fedwin.data.formats import clients, tff
from fedwin.errors import UserError
from tests.data.files import objects, write_fedjax_sqlite, write_tff_sqlite

OPTIONS = "stackoverflow:users=6,tests=9,vocabulary_size=4,length=5"
# In no order, and in another one in each form.
USERS = {f"{k * 37 % 101:08d}": [b"the code", b"to the rest a a a", b"a", b"to"][: 1 + k % 4] for k in range(12)}
TESTS = {f"9{k * 5 % 7:07d}": [b"code to %d" % i for i in range(k + 1)] for k in range(6)}


def write(folder, form, train=USERS, test=TESTS):
    folder.mkdir(exist_ok=True)
    (folder / "stackoverflow.word_count").write_bytes(b"the 9\nto 8\na 7\ncode 6\n")
    sides = {"train": train, "test": test}
    if form == "tff":
        backwards = {side: dict(reversed(held.items())) for side, held in sides.items()}
        rows = {
            side: {c: [{"tokens": s} for s in listed] for c, listed in held.items()} for side, held in backwards.items()
        }
        write_tff_sqlite(folder / "stackoverflow.sqlite", rows, scattered=True)
        return
    for side, held in sides.items():
        if form == "fedjax":
            content = {client.encode(): {"tokens": objects(listed)} for client, listed in held.items()}
            write_fedjax_sqlite(folder / f"stackoverflow_{side}.sqlite", content)
        else:
            with h5py.File(folder / f"stackoverflow_{side}.h5", "w") as target:
                for client, listed in held.items():
                    target[f"examples/{client}/tokens"] = listed


def test_client_k_is_the_same_user_in_every_form(tmp_path):
    loaded = {}
    for form in ("fedjax", "tff", "hdf5"):
        write(tmp_path / form, form)
        loaded[form] = data.load(OPTIONS, tmp_path / form)
    one = loaded.pop("fedjax")
    assert list(map(clients.text, one.natural.ids)) != sorted(map(clients.text, one.natural.ids))
    for other in loaded.values():
        for own, theirs in ((one.natural, other.natural), (one.test_natural, other.test_natural)):
            assert list(map(clients.text, own.ids)) == list(map(clients.text, theirs.ids))
            np.testing.assert_array_equal(own.offset, theirs.offset)
        for split in ("train", "test"):
            for key in ("x", "y"):
                np.testing.assert_array_equal(getattr(one, split)[key], getattr(other, split)[key])


def test_a_user_without_rows_is_named(tmp_path):
    write(tmp_path, "tff")
    with sqlite3.connect(tmp_path / "stackoverflow.sqlite") as connection:
        connection.execute("DELETE FROM examples WHERE client_id = '00000037'")
    with pytest.raises(UserError, match="stackoverflow.sqlite, split train: there is no example of client '00000037'"):
        data.load(OPTIONS.replace("users=6", "users=12"), tmp_path)


@pytest.mark.parametrize("split, client", [("train", "00000003"), ("test", "90000004")])
def test_fewer_sentences_than_announced_are_refused(tmp_path, split, client):
    write(tmp_path, "tff")
    with sqlite3.connect(tmp_path / "stackoverflow.sqlite") as connection:
        found = connection.execute("SELECT max(rowid) FROM examples WHERE client_id = ?", (client,)).fetchone()
        connection.execute("DELETE FROM examples WHERE rowid = ?", found)
    with pytest.raises(UserError, match=f"client '{client}': [0-9] sentences, but [0-9] according to") as error:
        data.load(OPTIONS.replace("users=6", "users=12").replace("tests=9", "tests=21"), tmp_path)
    assert "\n" not in str(error.value)


def test_rows_are_held_by_feature_and_in_the_order_asked_for(tmp_path):
    write(tmp_path, "tff")
    chosen = ["00000074", "00000000", "00000037"]
    found = list(tff.read_sqlite(tmp_path / "stackoverflow.sqlite", "train", lambda f: {"t": f["tokens"][0]}, chosen))
    assert [client for client, _ in found] == chosen
    assert all(features["t"].tolist() == USERS[client] for client, features in found)
    everyone = tff.read_sqlite(tmp_path / "stackoverflow.sqlite", "train", lambda f: {"t": f["tokens"][0]})
    assert {client for client, _ in everyone} == set(USERS)
