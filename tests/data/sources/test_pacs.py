"""PACS, from folders and archives."""

import numpy as np
import pytest

from fedwin import data
from tests.data.files import picture, refused, taken, tarred, write_pacs, zipped


@pytest.mark.parametrize("packed", ["", "pacs.tar", "my-Pacs.tgz", "pacs_data.ZIP"])
def test_pacs_from_folders_and_archives(tmp_path, packed):
    write_pacs(tmp_path)
    expected = data.load("pacs:size=8,resize=8", tmp_path)
    images = np.asarray(expected.train["x"])
    if packed.endswith("ZIP"):
        members = taken(tmp_path)
        zipped(tmp_path / packed, members | {name[:-5] + "._" + name[-5:]: b"of macOS" for name in members})
    elif packed:
        tarred(tmp_path / packed, taken(tmp_path), "w:gz" if packed.endswith("tgz") else "w")
    dataset = data.load("pacs:size=8,resize=8", tmp_path)
    counts = [np.bincount(side["domain"]).tolist() for side in (dataset.train, dataset.test)]
    assert counts == [[18] * 4, [2] * 4]
    assert set(dataset.train["y"]) == {0, 6} and images.shape == (72, 8, 8, 3)
    np.testing.assert_array_equal(np.asarray(dataset.train["x"]), images)
    np.testing.assert_array_equal(dataset.test["y"], expected.test["y"])
    part = data.make_partition(dataset, "domain:inner=iid", 8, 0)
    assert sorted(part.domain) == [0, 0, 1, 1, 2, 2, 3, 3] and part.report["left_out"] == 0


def test_incomplete_pacs_is_named(tmp_path):
    write_pacs(tmp_path, 1)
    (tmp_path / "PACS" / "photo" / "cat").mkdir()
    (tmp_path / "PACS" / "photo" / "cat" / "0.png").write_bytes(picture((0, 0, 0), kind="PNG"))
    refused("class folder 'cat'", data.load, "pacs", tmp_path)
    for file in (tmp_path / "PACS" / "photo").glob("*/*"):
        file.unlink()
    refused("no images of photo", data.load, "pacs", tmp_path)
