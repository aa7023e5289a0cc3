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


BROKEN = {
    "half a JPEG": lambda: noisy("JPEG")[:1000],
    "a PNG with a flipped byte": lambda: noisy("PNG")[:-200] + b"\0" + noisy("PNG")[-199:],
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("image", ["t.jpg"])
def test_a_broken_image_is_a_line_that_names_it(how, image, odd, refused):
    folder = odd / f"{how} {image}".replace("/", " ")
    write_landmarks(folder)
    (folder / "images" / image).write_bytes(BROKEN[how]())
    refused(
        f"{image}: not a decodable image | fetch it again", *TRAIN, f"--dataset={LANDMARKS}", f"--data_dir={folder}"
    )


def test_a_broken_image_of_folders_by_domain(odd, refused):
    write_pacs(odd / "styles", 3)
    (odd / "styles" / "PACS" / "photo" / "dog" / "1.png").write_bytes(noisy("PNG")[:300])
    data = ("--dataset=pacs:size=8,resize=8", "--data_dir=styles", "--num_clients=4")
    refused("photo/dog/1.png: not a decodable image | fetch it again", *TRAIN, *data)


@pytest.mark.parametrize("folder", ["", "images/a"])
@pytest.mark.parametrize("command", ["train", "prepare"])
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


def test_a_folder_that_may_not_be_entered_is_named(odd, refused, monkeypatch):
    """It can be listed, but nothing in it can be looked at."""
    write_landmarks(odd / "shut")
    stat = os.stat

    def guarded(path, *args, **kwargs):
        if "shut/" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", guarded)
    refused("shut/ | Permission denied | --data_dir", *TRAIN, f"--dataset={LANDMARKS}", "--data_dir=shut")
