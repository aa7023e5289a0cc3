"""Folders and tar archives of images with lists in CSV files, as Hsu et al. 2020 have them.

https://arxiv.org/abs/2003.08082. A list has the columns `user_id,image_id,class` (training) and `image_id,class`
(test).
"""

import os
import pathlib
import warnings
from typing import Any

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Partition, offsets
from fedwin.data.example_source import Images
from fedwin.data.formats import checksums, files
from fedwin.data.formats.image_files import by_name, columns_of, images_below, read_list
from fedwin.errors import UserError

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def find_images(path, images: list[str], index: dict[str, list[str]], found: dict) -> list:
    """Returns the image of every id.

    Args:
      path: the list, for error lines.
      images: ids.
      index: as from by_name.
      found: name -> image.

    Raises:
      UserError: naming the list and the first image that is missing or ambiguous.
    """
    for row, image in enumerate(images, 1):
        names = index.get(image, ())
        if not names:
            raise UserError(
                f"{path}: image '{image}' (record {row}) is not among the {len(found)} image files found; fetch it or "
                f"take it out of the list."
            )
        if len(names) > 1:
            raise UserError(
                f"{path}: image '{image}' (record {row}) names 2 files, {names[0]} and {names[1]}; remove one of them "
                f"or list the path."
            )
    return [found[index[image][0]] for image in images]


def natural(users: list[str]) -> Partition:
    """Groups the rows of a list by user, in order of the ids (by number where all are numbers)."""
    ids, inverse = np.unique(np.array(users), return_inverse=True)
    if all(user.isdigit() for user in ids):
        by_number = np.argsort(ids.astype(np.int64), kind="stable")
        ids, inverse = ids[by_number], np.argsort(by_number)[inverse]
    sizes = np.bincount(inverse, minlength=len(ids))
    return Partition(np.argsort(inverse, kind="stable").astype(np.int32), offsets(sizes), ids=ids)


def from_lists(
    name: str,
    train_list: tuple[pathlib.Path, bytes],
    test_list: tuple[pathlib.Path, bytes],
    groups,
    size: int,
    resize: int,
    num_classes: int | None,
    user_column: str | None,
) -> Dataset:
    """Builds a data set whose images stay in their files and are decoded when used.

    Args:
      name: what the data set is called.
      train_list: (what to call it, content) of the training list.
      test_list: the same of the test list.
      groups: folders and archives of the images; one that an earlier group has is not looked for in the later ones.
      size: pixels of a side, cut from the centre of the scaled image.
      resize: pixels that the short side is scaled to.
      num_classes: the largest class + 1 by default.
      user_column: the column of the training list that names the clients, or None.

    Raises:
      UserError: bad lists, or a list that names a missing image.
    """
    (train_csv, _), (test_csv, _) = train_list, test_list
    train_ids, users, train_y = read_list(*train_list, user_column)
    test_ids, _, test_y = read_list(*test_list, None)
    classes = int(max(train_y.max(), test_y.max())) + 1 if num_classes is None else num_classes
    for path, labels in ((train_csv, train_y), (test_csv, test_y)):
        if labels.max() >= classes:
            row = int((labels >= classes).argmax())
            raise UserError(f"{path}, record {row + 1}: class {labels[row]} is not in 0..{classes - 1}.")
    wanted = {*train_ids, *test_ids}
    found: dict[str, Any] = {}
    index: dict[str, list[str]] = {}
    for group in groups:
        # A shard's name goes before those of its members, so that the same name in two shards stays two images.
        held = {(place, name): image for place in group for name, image in images_below(place).items()}
        index |= by_name(held, wanted - index.keys())
        found |= {os.path.join(*key): held[key] for key in held}
    make = lambda path, ids, labels: {"x": Images(find_images(path, ids, index, found), size, resize), "y": labels}
    return Dataset(
        name,
        make(train_csv, train_ids, train_y),
        make(test_csv, test_ids, test_y),
        classes,
        mean=IMAGENET[0],
        std=IMAGENET[1],
        natural=natural(users) if users else None,
        verified=False,
    )


def find_list(dataset: str, folder: pathlib.Path, names) -> tuple[pathlib.Path, bytes] | None:
    """Returns (what to call it, content) of the first list in a folder, or in a zip archive there."""
    for name in names:
        if path := files.locate(folder, name):
            blob = files.read(path)
            checksums.verify(dataset, [(str(path), path, blob)])
            return path, blob
    for archive in sorted(folder.glob("*.zip")):
        try:
            held = files.entries(archive, set(names).__contains__)
        except UserError as error:  # perhaps of something else
            warnings.warn(f"{error} It was passed over.", stacklevel=5)
            continue
        for name in names:
            if name in held:
                checksums.verify(dataset, [(str(archive), archive, None)])
                return archive / name, files.content(held[name])
    return None


def build(
    name: str, data_dir, patterns, train_names, test_names, size, resize, num_classes, user_columns, source: str
) -> Dataset:
    """Finds the lists and the images below data_dir: in folders and in the shards `images_*.tar` beside them."""
    for folder in files.folders(data_dir, *patterns):
        if not folder.is_dir():
            continue
        train_list = find_list(name, folder, train_names)
        test_list = train_list and find_list(name, folder, test_names)
        if train_list and test_list:
            header = columns_of(train_list[1])
            column = next((column for column in user_columns if column in header), user_columns[0])
            place = next((folder / sub for sub in ("images", "train") if (folder / sub).is_dir()), folder)
            shards = [shard for where in dict.fromkeys((folder, place)) for shard in sorted(where.glob("images_*.tar"))]
            return from_lists(name, train_list, test_list, [[place], shards], size, resize, num_classes, column)
    raise files.missing(name, data_dir, f"{train_names[0]} and {test_names[0]}", source)


@DATASETS.register(
    "image_folder",
    title="any image folder",
    how="your images, `train.csv` (`user_id,image_id,class`), `test.csv`",
    prepared="decoded when used",
)
def image_folder(
    data_dir,
    *,
    train: str = "train.csv",
    test: str = "test.csv",
    images: str = ".",
    size: int = 224,
    resize: int = 256,
    num_classes: int | None = None,
    user: str = "user_id",
) -> Dataset:
    """Any folder of images with two lists: `user_id,image_id,class` and `image_id,class`; images decoded when used.

    Args:
      train: the training list, in data_dir.
      test: the test list, in data_dir.
      images: the folder or archive of the images, in data_dir.
      size: pixels of a side, cut from the centre of the scaled image.
      resize: pixels that the short side is scaled to.
      num_classes: the largest class + 1 by default.
      user: the column that names the clients; without it the data set has no clients of its own.
    """
    root = files.folders(data_dir)[0]
    lists = [(root / name, files.read(root / name)) for name in (train, test)]
    column = user if user in columns_of(lists[0][1]) or user != "user_id" else None
    return from_lists("image_folder", lists[0], lists[1], [[root / images]], size, resize, num_classes, column)
