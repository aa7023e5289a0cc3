"""Images with CSV lists: Landmarks, iNaturalist and custom folders."""

import os

import numpy as np
import pytest

from fedwin import data
from fedwin.data.sources.folder import natural
from tests.data.files import picture, refused, taken, tarred, write_landmarks, zipped


@pytest.mark.parametrize(
    "name, folder", [("landmarks", "landmarks-user-160k"), ("inaturalist", "inat"), ("landmarks", "")]
)
def test_lists_with_image_folders(tmp_path, name, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    write_landmarks(tmp_path / folder)
    dataset = data.load(f"{name}:size=16,resize=20", tmp_path)
    assert dataset.natural.ids.tolist() == ["3", "7", "10"]
    assert [dataset.natural.client(k).tolist() for k in range(3)] == [[3], [0, 2], [1]]
    assert dataset.train["x"].shape == (4, 16, 16, 3) and dataset.train["y"].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(dataset.train["x"][2][8, 8], [120, 0, 0], atol=4)
    np.testing.assert_allclose(np.asarray(dataset.test["x"])[0, 8, 8], [0, 255, 0], atol=4)
    part = data.make_partition(dataset, None, None, 0)
    assert part.report["histogram"].shape == (3, dataset.num_classes)


def test_lists_inside_their_zip_and_images_in_shards(tmp_path):
    write_landmarks(tmp_path)
    expected = np.asarray(data.load("landmarks:size=8,resize=8", tmp_path).train["x"])
    members = taken(tmp_path)
    lists = {name: members.pop(name) for name in ("federated_train.csv", "test.csv")}
    zipped(tmp_path / "landmarks-user-160k.zip", {f"landmarks-user-160k/{name}": blob for name, blob in lists.items()})
    (tmp_path / "a.zip").write_bytes(b"PK\3\4 no archive")
    for number, part in enumerate((list(members)[:2], list(members)[2:])):
        tarred(tmp_path / f"images_{number:03d}.tar", {name: members[name] for name in part})
    dataset = data.load("landmarks:size=8,resize=8", tmp_path)
    assert dataset.natural.ids.tolist() == ["3", "7", "10"]
    np.testing.assert_array_equal(np.asarray(dataset.train["x"]), expected)


def test_tff_lists_choose_the_clients_column(tmp_path):
    for k in range(3):
        (tmp_path / f"{k}.tif").write_bytes(picture((k, k, k), kind="TIFF"))
    (tmp_path / "iNaturalist_train.csv").write_text("user_120k,geo_100,image_id,class\nu1,g,0,5\nNA,g,1,6\n")
    (tmp_path / "iNaturalist_test.csv").write_text("user_120k,geo_100,image_id,class\nNA,NA,2,1\n")
    with pytest.warns(UserWarning, match="train.csv: 1 images are left out, as their user_120k is"):
        dataset = data.load("inaturalist:size=8,resize=8", tmp_path)
    assert dataset.train["y"].tolist() == [5] and dataset.natural.ids.tolist() == ["u1"]
    assert data.load("inaturalist:size=8,resize=8,users=geo_100", tmp_path).natural.sizes.tolist() == [2]
    for users in (["9" * 21, "1" + "0" * 21], ["10", "²"]):  # by number, but for what is none
        assert natural(users[::-1]).ids.tolist() == users


def test_any_folder_or_tar_of_images_with_lists(tmp_path):
    write_landmarks(tmp_path)
    text, folder = (tmp_path / "federated_train.csv").read_text(), tmp_path / "images"
    (tmp_path / "federated_train.csv").write_text(text.replace(",id", ",a/id"))
    members = {f"./{path.relative_to(folder)}": path.read_bytes() for path in folder.glob("**/*.jpg")}
    tarred(tmp_path / "all.tar", members)
    tarred(tmp_path / "all.tar.gz", members, "w:gz")
    lists = "train=federated_train.csv,test=test.csv,size=8,resize=8"
    seen = [
        data.load(f"image_folder:{lists},images={place}", tmp_path) for place in ("images", "all.tar", "all.tar.gz")
    ]
    for dataset in seen:
        np.testing.assert_array_equal(np.asarray(dataset.train["x"]), np.asarray(seen[0].train["x"]))
    assert seen[0].num_classes == 4 and seen[0].natural.num_clients == 3
    (tmp_path / "federated_train.csv").write_text("image_id,class\nid0,0\nid1,1\n")
    assert data.load(f"image_folder:{lists},images=images", tmp_path).natural is None


@pytest.mark.parametrize(
    "train, message",
    [
        ("user_id,image_id,class\n1,id0,0\n1,id9,1\n", "federated_train.csv: image 'id9' .record 2."),
        ("user_id,image_id,class\n1,id0,0\n2,id0,1\n", "line 3: image 'id0' is listed twice"),
        ("user_id,image_id,class\n", "lists no image"),
        ("image_id,class,user_id\nid0,0,1\nid1,1\n", "line 3: it has fewer values than the 3 columns"),
    ],
)
def test_bad_lists_are_named(tmp_path, train, message):
    write_landmarks(tmp_path)
    (tmp_path / "federated_train.csv").write_text(train)
    refused(message, data.load, "landmarks", tmp_path)


def test_an_image_that_two_files_may_be_is_refused(tmp_path):
    write_landmarks(tmp_path)
    other = tmp_path / "images" / "b"
    other.mkdir()
    (other / "id1.jpg").write_bytes(picture((0, 0, 9)))
    both = r"image 'id1' .record 2. names 2 files, .*/images/a/id1.jpg and .*/images/b/id1.jpg"
    refused(f"federated_train.csv: {both}", data.load, "landmarks", tmp_path)
    text = (tmp_path / "federated_train.csv").read_text()
    (tmp_path / "federated_train.csv").write_text(text.replace("id1", "b/id1"))  # a path leaves no doubt
    np.testing.assert_allclose(data.load("landmarks:size=8", tmp_path).train["x"][1][4, 4], [0, 0, 9], atol=4)
    (other / "id1.png").write_bytes(picture((0, 0, 9), kind="PNG"))
    refused("image 'b/id1' .record 2. names 2 files", data.load, "landmarks", tmp_path)


def test_lists_of_spreadsheets(tmp_path):
    write_landmarks(tmp_path)
    text = (tmp_path / "federated_train.csv").read_text()
    (tmp_path / "federated_train.csv").write_text("\ufeff" + text.replace(",3\n", ",3.0\n").replace("\n", "\r\n"))
    assert data.load("landmarks", tmp_path).train["y"].tolist() == [0, 1, 2, 3]


def test_an_undecodable_or_vanished_image_is_named_when_it_is_used(tmp_path):
    write_landmarks(tmp_path)
    path = tmp_path / "images" / "a" / "id1.jpg"
    path.write_bytes(path.read_bytes()[:150])
    dataset = data.load("landmarks:size=8,resize=8", tmp_path)
    refused("id1.jpg: not a decodable image", np.asarray, dataset.train["x"])
    path.unlink()
    with data.ExampleSource(dataset.train) as lazy:
        refused("id1.jpg.*No such file", lazy.gather, [0, 1])


def test_a_folder_that_may_not_be_listed_is_named(tmp_path, monkeypatch):
    write_landmarks(tmp_path)
    listed = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed(f"{path}/b" if str(path).endswith("images/a") else path))
    refused("images/a/b: can.t be read .*; check --data_dir", data.load, "landmarks", tmp_path)
