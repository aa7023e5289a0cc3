"""SQLite files of FedJAX and TensorFlow Federated."""

import sqlite3

import numpy as np
import pytest

from fedwin.data.formats import sqlite
from tests.data.files import COMPRESS, refused, tff_example, write_fedjax, write_tff

HELD = {
    b"a": {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "empty": np.zeros((2, 0, 4), np.uint8),
        "truth": np.array([True, False]),
        "texts": np.array([b"a\0", b"\xff"], object),
    },
    b"b": {"x": np.ones((1, 3), np.float32)},
}


@pytest.mark.parametrize("suffix", ["", ".lzma"])
def test_clients_of_plain_and_compressed_files(tmp_path, suffix):
    write_fedjax(tmp_path / "f.sqlite", HELD)
    path = tmp_path / f"f.sqlite{suffix}"
    path.write_bytes(COMPRESS[suffix]((tmp_path / "f.sqlite").read_bytes()))
    assert [client for client, _ in sqlite.read(path)] == [b"a", b"b"]
    chosen = list(sqlite.read(path, [b"b", b"a"]))
    assert [client for client, _ in chosen] == [b"b", b"a"] and chosen[1][1]["texts"].tolist() == [b"a\0", b"\xff"]
    assert sqlite.sizes(path) == {b"a": 2, b"b": 1}


def test_a_message_written_out_by_hand():
    # label = int64 [7], s = bytes ['ab'], x = float [0.5, 1.0], each list packed.
    blob = bytes.fromhex(
        "0a300a0e0a056c6162656c12051a030a01070a0b0a017312060a040a0261620a110a0178120c120a0a080000003f0000803f"
    )
    parsed = sqlite.parse_example(blob)
    assert parsed["label"].tolist() == [7] and parsed["s"] == [b"ab"] and parsed["x"].tolist() == [0.5, 1.0]
    for damaged in (blob[:-3], b"\x0f\xff\xff", b"\x0a\x05abc"):
        with pytest.raises(ValueError):
            sqlite.parse_example(damaged)


def test_examples_of_a_split_are_grouped_by_client(tmp_path):
    write_tff(
        tmp_path / "f.sqlite.lzma",
        {"train": {"me": [{"n": [b"\1"]}, {"n": [b"\2"]}], "you": [{"n": [b"\3"]}]}, "test": {"me": []}},
    )
    numbers = lambda features: {"n": np.frombuffer(features["n"][0], np.uint8)}
    read = list(sqlite.read_tff(tmp_path / "f.sqlite.lzma", "train", numbers))
    assert [(client, features["n"].tolist()) for client, features in read] == [("me", [[1], [2]]), ("you", [[3]])]
    refused("no example of split 'test'", list, sqlite.read_tff(tmp_path / "f.sqlite.lzma", "test", numbers))
    labels = sqlite.read_tff(tmp_path / "f.sqlite.lzma", "train", lambda features: {"y": features["label"]})
    refused("split train, record 0 of client 'me': there is no 'label'", list, labels)
    assert sqlite.parse_example(tff_example({"n": [b"x"]})) == {"n": [b"x"]}


def test_damaged_files_records_and_sizes_and_missing_files_are_named(tmp_path):
    path, torn = tmp_path / "train.sqlite", tmp_path / "torn.sqlite"
    refused("train.sqlite: no such file", list, sqlite.read(path))
    write_fedjax(path, HELD)
    for blob in (b"not a database" * 100, path.read_bytes().replace(b"CREATE TABLE", b"CREA\xff\xfe TAB")):
        torn.write_bytes(blob)
        refused("torn.sqlite: not a readable federated SQLite file", list, sqlite.read(torn))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE federated_data SET data = ?, num_examples = -2 WHERE client_id = ?", (b"zzz", b"b"))
    refused("train.sqlite, client 'b': its record is damaged", list, sqlite.read(path))
    refused("train.sqlite, client 'b': num_examples is -2", sqlite.sizes, path)
