"""Compressed files, archives, streams of clients and LEAF's JSON."""

import json

import numpy as np
import pytest

from fedwin.data.formats import clients, files, leaf, values
from tests.data.files import COMPRESS, refused, tarred, zipped


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](b"content" * 99))
    assert files.read(path) == b"content" * 99 and files.locate(tmp_path, "a.txt") == path
    assert files.plain(f"b/{path.name}") == "a.txt"
    if suffix:
        path.write_bytes(path.read_bytes()[:-9])
        refused(f"{path.name}: the compressed file is truncated or damaged", files.read, path)


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.tar.gz", "x.tar.xz"])
def test_members_of_archives(tmp_path, name):
    contents = {"f/a.txt": b"1", "f/b.txt.gz": COMPRESS[".gz"](b"2"), "f/c": b"3"}
    if name == "x.zip":
        zipped(tmp_path / name, contents)
    else:
        tarred(tmp_path / name, contents, "w:" + name.partition("tar.")[2])
    assert files.members(tmp_path / name) == contents
    assert files.entries(tmp_path / name, lambda plain: plain.endswith(".txt")) == {"a.txt": b"1", "b.txt": b"2"}
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:40])
    refused(f"{name}: not a readable tar or zip archive .*fetch it again", files.members, tmp_path / name)


def two(**second):
    first = {"x": np.zeros((2, 3)), "y": np.zeros(2, int)}
    return [("a", first), ("b", {**first, **second})]


@pytest.mark.parametrize(
    "stream, message",
    [
        ([], "contains no clients"),
        (two()[:1] * 2, "client id 'a' occurs twice"),
        (two(y=np.zeros(1, int)), "client 'b': features differ in length"),
        (two(x=np.zeros((2, 4))), "client 'b': 'x' has shape .4,., but .3,. before"),
    ],
)
def test_streams_of_clients(stream, message):
    refused(f"file.*{message}", clients.flatten, stream, "file")


@pytest.mark.parametrize(
    "given, message",
    [
        ([0, 1.5], "record 1: label 1.5 is not a whole number"),
        ([0, np.nan], "record 1: label nan is not a whole number"),
        ([np.uint64(2**63)], "record 0: label 9223372036854775808 is not in"),
    ],
)
def test_labels_are_whole_numbers(given, message):
    refused(message, values.labels, np.array(given), 3, error=ValueError)
    assert values.labels([0, 2.0, 1], 3).tolist() == [0, 2, 1]
    assert values.pixels(np.array([255.0, 0]), (1, 1)).tolist() == [[[255]], [[0]]]


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "a.json: not a LEAF file with users and user_data"),
        (json.dumps({"users": ["u"], "user_data": {"u": {"x": [1], "y": []}}}), "client 'u': 1 inputs for 0 labels"),
        (json.dumps({"users": ["u", "u"], "user_data": {"u": {"x": [1], "y": [1]}}}), "client id 'u' occurs twice"),
    ],
)
def test_damaged_leaf_files(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    refused(message, list, leaf.read(leaf.parts(tmp_path)))
