"""Broken image files and unreadable folders."""

import errno
import io
import os

import numpy as np
import pytest
from PIL import Image

from tests.data.image_files import write_landmarks, write_pacs

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")

TRAIN = "train --model=digits_mlp:hidden=4 --clients_per_round=2 --num_rounds=3 --out_dir=run".split()
LANDMARKS = "landmarks:size=8,resize=8"
NOISE = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)


def noisy(kind: str) -> bytes:
    """An image that does not end before its file does."""
    stream = io.BytesIO()
    Image.fromarray(NOISE).save(stream, kind)
    return stream.getvalue()


def test_a_broken_image_of_folders_by_domain(odd, refused):
    write_pacs(odd / "styles", 3)
    (odd / "styles" / "PACS" / "photo" / "dog" / "1.png").write_bytes(noisy("PNG")[:300])
    data = ("--dataset=pacs:size=8,resize=8", "--data_dir=styles", "--num_clients=4")
    refused("photo/dog/1.png: not a decodable image | fetch it again", *TRAIN, *data)


@pytest.mark.parametrize("command, folder", [("train", "images/a"), ("prepare", "")])
def test_a_folder_that_may_not_be_listed_is_named(command, folder, odd, refused, monkeypatch):
    root = odd / f"closed_{folder}_{command}".replace("/", "_")
    write_landmarks(root)
    closed = str((root / folder).resolve())

    def guarded(function):
        def listing(path="."):
            if os.path.realpath(path) == closed:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return function(path)

        return listing

    monkeypatch.setattr(os, "listdir", guarded(os.listdir))
    monkeypatch.setattr(os, "scandir", guarded(os.scandir))
    arguments = TRAIN if command == "train" else ["prepare"]
    refused(f"{closed} | Permission denied | --data_dir", *arguments, f"--dataset={LANDMARKS}", f"--data_dir={root}")
