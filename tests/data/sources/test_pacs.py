"""PACS, from folders and archives."""

import tarfile

import numpy as np
import pytest

from fedwin import data
from fedwin.errors import UserError
from tests.data.image_files import picture, write_pacs

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")


@pytest.mark.parametrize("packed", ["", ".tar", ".tar.gz"])
def test_pacs_from_folders_and_archives(tmp_path, packed):
    write_pacs(tmp_path / "x")
    place = tmp_path / "x"
    if packed:
        place = tmp_path / "y"
        place.mkdir()
        with tarfile.open(place / f"pacs{packed}", "w:gz" if packed.endswith("gz") else "w") as archive:
            archive.add(tmp_path / "x" / "PACS", "PACS")
    dataset = data.load("pacs:size=8,resize=8", place)
    assert (
        np.bincount(dataset.train["domain"]).tolist() == [18] * 4
        and np.bincount(dataset.test["domain"]).tolist() == [2] * 4
    )
    assert set(dataset.train["y"]) == {0, 6} and np.asarray(dataset.train["x"]).shape == (72, 8, 8, 3)
    again = data.load("pacs:size=8,resize=8", place)
    np.testing.assert_array_equal(dataset.test["y"], again.test["y"])
    part = data.make_partition(dataset, "domain:inner=iid", 8, 0)
    assert sorted(part.domain) == [0, 0, 1, 1, 2, 2, 3, 3] and part.report["left_out"] == 0


def test_incomplete_pacs_is_named(tmp_path):
    write_pacs(tmp_path)
    (tmp_path / "PACS" / "photo" / "cat").mkdir()
    (tmp_path / "PACS" / "photo" / "cat" / "0.png").write_bytes(picture((0, 0, 0), kind="PNG"))
    with pytest.raises(UserError, match="class folder 'cat'"):
        data.load("pacs", tmp_path)
    for file in (tmp_path / "PACS" / "photo").glob("*/*"):
        file.unlink()
    with pytest.raises(UserError, match="no images of photo"):
        data.load("pacs", tmp_path)
    with pytest.raises(UserError, match="test_fraction=1"):
        data.load("pacs:test_fraction=1", tmp_path)
