"""Partitions read from published files."""

import gzip
import json

import numpy as np
import pytest

from fedwin import data
from tests.data.files import labeled, refused

LABELS = np.array([3, 1, 4, 1, 5, 9])
DATASET = labeled(LABELS, 10)


def test_hsu_csv(tmp_path):
    path = tmp_path / "federated_train_alpha_0.50.csv"
    path.write_text("user_id,image_id,class\n10,0,3\n2,1,1\n2,3,1\n10,5,9\n")
    part = data.make_partition(DATASET, f"csv:path={path}", None, 0)
    assert part.ids.tolist() == ["2", "10"]  # by number, not by letter
    assert part.client(0).tolist() == [1, 3] and part.client(1).tolist() == [0, 5]
    assert part.report["left_out"] == 2
    path.write_text("user_id,image_id\n²,0\n2,1\n")  # the class column may be missing
    numbers = data.from_arrays(np.eye(6), LABELS / 2, np.eye(6), LABELS / 2, task="regression")
    rows = data.from_arrays(np.eye(6), np.eye(6, dtype=int), np.eye(6), np.eye(6, dtype=int), task="sequence")
    for own in (DATASET, numbers, rows):
        assert data.make_partition(own, f"csv:path={path}", 2, 0).ids.tolist() == ["2", "²"]
    refused("num_clients=2", data.make_partition, DATASET, f"csv:path={path}", 3, 0)


def test_leaf_keyed_json(tmp_path):
    path = tmp_path / "split.json.gz"
    content = {"users": ["0", "1"], "num_samples": [2, 1]}
    content["user_data"] = {
        "0": {"x": ["img_2_label_4.png", "img_4_label_5.png"], "y": [4, 5]},
        "1": {"x": ["img_1_label_1.png"], "y": [1]},
    }
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    part = data.make_partition(DATASET, f"csv:path={path}", 2, 0)
    assert part.client(0).tolist() == [2, 4] and part.client(1).tolist() == [1]


@pytest.mark.parametrize(
    "text, message",
    [
        ("user_id,image_id,class\n0,0,3\n0,6,1\n", "line 3: image 6"),
        ("user_id,image_id,class\n0,0,3\n1,0,3\n", "line 3: image 0 is assigned twice"),
        ("user_id,image_id,class\n0,zero,3\n", "line 2: 'zero'"),
        ('{"users": ["0", "0"], "user_data": {"0": {"x": [], "y": []}}}', "client id '0' occurs twice"),
        ("user_id,image_id,class\n0,0\n", "line 2: it has fewer values"),
        ("user_id,image_id,class\n0,a,b.png,1\n", "line 2: it has more values than the 3 columns"),
        ("user_id,image_id\nä,0\nö,1\n", "not UTF-8 .* at byte 17"),  # two clients, not one
        ('{"users": [], "num_samples": [], "user_data": {}}', "it contains no example"),
    ],
)
def test_bad_files_are_refused_with_the_record(tmp_path, text, message):
    path = tmp_path / "split.csv"
    path.write_bytes(text.encode("latin-1"))
    assert "split.csv" in refused(message, data.make_partition, DATASET, f"csv:path={path}", None, 0)


def test_a_missing_or_truncated_file_is_named(tmp_path):
    refused("none.csv", data.make_partition, DATASET, f"csv:path={tmp_path}/none.csv", None, 0)
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"user_id,image_id,class\n0,0,3\n" * 50)[:-9])
    refused("cut.csv.gz.*truncated", data.make_partition, DATASET, f"csv:path={tmp_path}/cut.csv.gz", None, 0)
