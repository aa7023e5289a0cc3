"""Images in folders and tar archives, with lists in CSV files as in Hsu et al. 2020, https://arxiv.org/abs/2003.08082.

A training list has the columns `user_id,image_id,class`, a test list `image_id,class`.
"""

import os
import pathlib
import warnings

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Partition, offsets
from fedwin.data.example_source import Images, Item
from fedwin.data.formats import checksums, files
from fedwin.data.formats.image_files import by_name, columns_of, images_below, read_list
from fedwin.errors import UserError
from fedwin.registry.ranges import PositiveInt

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


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
    size: PositiveInt = 224,
    resize: PositiveInt = 256,
    num_classes: PositiveInt | None = None,
    user: str = "user_id",
) -> Dataset:
    """Any folder of images with two lists: `user_id,image_id,class` and `image_id,class`; images are decoded on access.

    Args:
      data_dir: folder of the lists.
      train: name of the training list in data_dir.
      test: name of the test list in data_dir.
      images: folder or archive of the images, in data_dir.
      user: name of the column of clients; without it the data set has no natural clients.

    Raises:
      UserError: a wrong list, or a missing image.
    """
    root = files.folders(data_dir)[0]
    lists = [(root / name, files.read(root / name)) for name in (train, test)]
    column = user if user in columns_of(lists[0][1]) or user != "user_id" else None
    return from_lists("image_folder", lists[0], lists[1], [[root / images]], size, resize, num_classes, column)


def build(
    name: str, data_dir, patterns, train_names, test_names, size, resize, num_classes, user_columns, source: str
) -> Dataset:
    """Finds lists and images below data_dir (folders, archives `images_*.tar`) and builds the data set.

    Args:
      name: name of the data set.
      data_dir: the folder to search.
      patterns: patterns of folder names.
      train_names: possible names of the training list.
      test_names: possible names of the test list.
      size: side of the images in pixels.
      resize: pixels that the short side is scaled to.
      num_classes: number of classes.
      user_columns: possible names of the column of clients.
      source: URL for a download.

    Returns:
      The Dataset.

    Raises:
      UserError: as for `from_lists`, or no lists.
    """
    for folder in files.folders(data_dir, *patterns):
        if not folder.is_dir():
            continue
        train_list = find_list(name, folder, train_names)
        test_list = train_list and find_list(name, folder, test_names)
        if train_list and test_list:
            header = columns_of(train_list[1])
            column = next((column for column in user_columns if column in header), user_columns[0])
            images = next((folder / sub for sub in ("images", "train") if (folder / sub).is_dir()), folder)
            parents = dict.fromkeys((folder, images))
            archives = [path for parent in parents for path in sorted(parent.glob("images_*.tar"))]
            return from_lists(name, train_list, test_list, [[images], archives], size, resize, num_classes, column)
    raise files.missing(name, data_dir, f"{train_names[0]} and {test_names[0]}", source)


def find_list(dataset: str, folder: pathlib.Path, names) -> tuple[pathlib.Path, bytes] | None:
    """Finds the first of several lists in a folder, or in a zip archive there.

    Args:
      dataset: name of the data set.
      folder: the folder.
      names: names of the lists.

    Returns:
      (path, content), or None.
    """
    for name in names:
        if path := files.locate(folder, name):
            blob = files.read(path)
            checksums.verify(dataset, [(str(path), path, blob)])
            return path, blob
    for archive in sorted(folder.glob("*.zip")):
        try:
            entries = files.entries(archive, set(names).__contains__)
        except UserError as error:  # possibly unrelated
            warnings.warn(f"{error} It is ignored.", stacklevel=5)
            continue
        for name in names:
            if name in entries:
                checksums.verify(dataset, [(str(archive), archive, None)])
                return archive / name, files.content(entries[name])
    return None


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
    """Builds a data set whose images stay in their files and are decoded on access.

    Args:
      name: name of the data set.
      train_list: (path, content) of the training list.
      test_list: (path, content) of the test list.
      groups: groups of folders and archives; images that are found in one group are not searched in later ones.
      size: side of the images in pixels, cropped from the center of the scaled image.
      resize: pixels that the short side is scaled to.
      num_classes: number of classes; the largest class + 1 by default.
      user_column: name of the column of clients in the training list, or None.

    Returns:
      The Dataset.

    Raises:
      UserError: a wrong list, or a missing image.
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
    available: dict[str, Item] = {}
    index: dict[str, list[str]] = {}
    for group in groups:
        # Names of members are prefixed by their archive, so that equal names in two archives stay two images.
        images = {(location, name): image for location in group for name, image in images_below(location).items()}
        index |= by_name(images, wanted - index.keys())
        available |= {os.path.join(*key): images[key] for key in images}
    make = lambda path, ids, labels: {"x": Images(find_images(path, ids, index, available), size, resize), "y": labels}
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


def find_images(path, images: list[str], index: dict[str, list[str]], available: dict[str, Item]) -> list[Item]:
    """Finds the image of every id.

    Args:
      path: the list, for error messages.
      images: the ids.
      index: id -> names of matching images, as from by_name.
      available: name -> image.

    Returns:
      The images.

    Raises:
      UserError: naming the list and the first image that is missing or ambiguous.
    """
    for row, image in enumerate(images, 1):
        names = index.get(image, ())
        if not names:
            raise UserError(
                f"{path}: image '{image}' (record {row}) is not among the {len(available)} image files found; fetch it "
                f"or remove it from the list."
            )
        if len(names) > 1:
            raise UserError(
                f"{path}: image '{image}' (record {row}) names 2 files, {names[0]} and {names[1]}; remove one of them "
                f"or list the path."
            )
    return [available[index[image][0]] for image in images]


def natural(users: list[str]) -> Partition:
    """Groups the rows of a list by user, in order of the ids (by number if all are numbers)."""
    ids, inverse = np.unique(np.array(users), return_inverse=True)
    if all(user.isdigit() for user in ids):
        by_number = np.argsort(ids.astype(np.int64), kind="stable")
        ids, inverse = ids[by_number], np.argsort(by_number)[inverse]
    sizes = np.bincount(inverse, minlength=len(ids))
    return Partition(np.argsort(inverse, kind="stable").astype(np.int32), offsets(sizes), ids=ids)
