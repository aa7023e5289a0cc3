"""A folder of images that may not be listed."""

import errno
import os

import pytest

from tests.data.image_files import write_landmarks


@pytest.mark.filterwarnings("ignore:.*unverified")
def test_a_folder_that_may_not_be_listed_is_named(odd, refused, monkeypatch):
    root = odd / "closed"
    write_landmarks(root)
    closed = str((root / "images" / "a").resolve())

    def guarded(function):
        def listing(path="."):
            if os.path.realpath(path) == closed:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return function(path)

        return listing

    monkeypatch.setattr(os, "listdir", guarded(os.listdir))
    monkeypatch.setattr(os, "scandir", guarded(os.scandir))
    command = "train --model=digits_mlp:hidden=4 --clients_per_round=2 --num_rounds=3 --out_dir=run".split()
    data = ("--dataset=landmarks:size=8,resize=8", f"--data_dir={root}")
    refused(f"{closed} | Permission denied | --data_dir", *command, *data)
