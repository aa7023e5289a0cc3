"""Images in folders and tar archives, with Hsu et al.'s lists in CSV files (`formats.image_files`)."""

import pathlib
from typing import Literal

import numpy as np

from fedwin.data.checks import count_classes
from fedwin.data.dataset import DATASETS, Dataset, FullSize, Partition, offsets
from fedwin.data.example_source import Images, Item
from fedwin.data.formats import checksums, files
from fedwin.data.formats.image_files import by_name, read_list
from fedwin.errors import UserError
from fedwin.registry.ranges import PositiveInt

Names = tuple[str, ...]
# Path and content of a list.
List = tuple[pathlib.Path, bytes]
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@DATASETS.register("image_folder", how="your images, `train.csv` (`user_id,image_id,class`), `test.csv`")
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
    task: Literal["classification", "regression"] = "classification",
) -> Dataset:
    """Any folder of images with two lists: `user_id,image_id,class` and `image_id,class`; images are decoded on access.

    In a regression the column `class` has any numbers.

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
    train_list, test_list = ((root / name, files.read(root / name)) for name in (train, test))
    column = user if user in files.columns_of(train_list[1]) or user != "user_id" else None
    return load("image_folder", train_list, test_list, [root / images], column, size, resize, num_classes, task)


def load(
    name: str,
    train: List,
    test: List,
    places: list[pathlib.Path],
    user_column: str | None,
    size: int,
    resize: int,
    num_classes: int | None,
    task: str = "classification",
) -> Dataset:
    """Builds a data set whose images stay in their files and are decoded on access.

    Args:
      places: folders and archives of images; an image that is found in one of them is not searched in later ones.
      user_column: name of the column of clients in the training list, or None.

    Raises:
      UserError: a wrong list, or a missing image.
    """
    train_ids, users, train_y = read_list(*train, user_column, task)
    test_ids, _, test_y = read_list(*test, None, task)
    classes = count_classes(np.append(train_y, test_y), num_classes, task)
    for (path, _), labels in ((train, train_y), (test, test_y)):
        if labels.max() >= classes and task != "regression":
            row = int((labels >= classes).argmax())
            raise UserError(f"{path}, record {row + 1}: class {labels[row]} is not in 0..{classes - 1}.")
    found: dict[str, dict[str, Item]] = {}
    for place in places:
        found |= by_name(place, {*train_ids, *test_ids} - found.keys())
    images = lambda path, ids: Images(find_images(path, ids, found, places[0]), size, resize)
    return Dataset(
        name,
        {"x": images(train[0], train_ids), "y": train_y},
        {"x": images(test[0], test_ids), "y": test_y},
        classes,
        task,
        mean=IMAGENET[0],
        std=IMAGENET[1],
        natural=natural(users) if users else None,
        verified=False,
    )


def find(
    name: str, data_dir, patterns: Names, lists: tuple[Names, ...], users: Names, source: str
) -> tuple[List, List, list[pathlib.Path], str]:
    """Finds lists and images (folders, archives `images_*.tar`) below data_dir: the arguments of `load` up to the size.

    Args:
      lists: possible names of (training list, test list).

    Raises:
      UserError: no lists.
    """
    for names in lists:
        if found := files.search(files.folders(data_dir, *patterns), names):
            paths = [path if isinstance(entry, pathlib.Path) else path.parent for path, entry in found.values()]
            checksums.verify_files(name, paths)
            train, test = ((path, files.content(entry)) for path, entry in found.values())
            column = next((column for column in users if column in files.columns_of(train[1])), users[0])
            folder = paths[0].parent
            images = next((folder / sub for sub in ("images", "train") if (folder / sub).is_dir()), folder)
            archives = [path for parent in {folder, images} for path in parent.glob("images_*.tar")]
            return train, test, [images, *sorted(archives)], column
    raise files.missing(name, data_dir, " and ".join(lists[0]), source)


def find_images(path, ids: list[str], found: dict[str, dict[str, Item]], place: pathlib.Path) -> list[Item]:
    """Returns the image of every id in a list, given id -> path -> image, as from `by_name`.

    Raises:
      UserError: naming the list and the first image that is missing, with a `place` for it, or ambiguous.
    """
    for row, image in enumerate(ids, 1):
        paths = list(found.get(image, ()))
        if not paths:
            raise UserError(f"{path}: image '{image}' (record {row}) is not in {place}; put it there or unlist it.")
        if len(paths) > 1:
            raise UserError(
                f"{path}: image '{image}' (record {row}) names 2 files, {paths[0]} and {paths[1]}; remove one of them "
                f"or list the path."
            )
    return [next(iter(found[image].values())) for image in ids]


def natural(users: list[str]) -> Partition:
    """Groups the rows of a list by user, in order of the ids (by number if all are numbers)."""
    ids, inverse = np.unique(np.array(users), return_inverse=True)
    if all(user.isdecimal() for user in ids):
        by_number = np.array(sorted(range(len(ids)), key=lambda k: int(ids[k])))  # ids may exceed 64 bits
        ids, inverse = ids[by_number], np.argsort(by_number)[inverse]
    sizes = np.bincount(inverse, minlength=len(ids))
    return Partition(np.argsort(inverse, kind="stable").astype(np.int32), offsets(sizes), ids=ids)


LISTS = "http://storage.googleapis.com/gresearch/federated-vision-datasets/landmarks-user-160k.zip"
SMALL = "https://storage.googleapis.com/tff-datasets-public/"


@DATASETS.register(
    "landmarks",
    full=lambda params: FullSize(23_080, None, 233) if params["small"] else FullSize(164_172, None, 1_262),
    downloads=(LISTS,),
    variants={"small=true": (SMALL + "mini_gld_train_split.csv", SMALL + "mini_gld_test.csv")},
    by_hand="the images <image_id>.jpg named in the lists, from "
    "https://s3.amazonaws.com/google-landmark/train/images_000.tar to _499",
    checksums={
        "landmarks-user-160k.zip": ("md5", "53c36bd7d5fc12f927af2820b7e4a57c"),
        "mini_gld_train_split.csv": ("md5", "9fd62cf79a67046fdd673d3a0ac52841"),
        "mini_gld_test.csv": ("md5", "298e9d19d66357236f66fe8e22920933"),
    },
)
def landmarks(data_dir, *, size: PositiveInt = 224, resize: PositiveInt = 256, small: bool = False) -> Dataset:
    """Landmarks-User-160k: 164,172 images of 2,028 landmarks by 1,262 photographers; images are decoded on access.

    Args:
      data_dir: folder with `federated_train.csv`, `test.csv` and the images `<image_id>.jpg` at any depth, or the
        archives `images_NNN.tar` that contain them.
      small: whether to load gld23k, with 233 clients and 203 classes (`mini_gld_train_split.csv`, `mini_gld_test.csv`).

    Source: https://arxiv.org/abs/2003.08082.
    """
    names = ("mini_gld_train_split.csv", "mini_gld_test.csv") if small else ("federated_train.csv", "test.csv")
    source = SMALL + "mini_gld_{train_split,test}.csv" if small else LISTS
    found = find("landmarks", data_dir, ("landmark*", "gld*"), (names,), ("user_id",), source)
    return load("landmarks", *found, size, resize, 203 if small else 2028)


@DATASETS.register(
    "inaturalist",
    full=lambda params: FullSize(120_300, 35_641, 9_275) if params["users"] == "user_120k" else FullSize(),
    by_hand="iNaturalist_{train,test}.csv, and train_val_images.tar.gz and test2017.tar.gz from "
    "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/",
    checksums={
        "iNaturalist_train.csv": ("md5", "63d5a41699434bc2b13f5853f3764c18"),
        "iNaturalist_test.csv": ("md5", "bcf08a5a740ee76dac4e5af668081891"),
        "train_val_images.tar.gz": ("md5", "7c784ea5e424efaec655bd392f87301f"),
        "test2017.tar.gz": ("md5", "7d9b096fa1cd94d67a0fa779ea301234"),
    },
)
def inaturalist(data_dir, *, size: PositiveInt = 224, resize: PositiveInt = 256, users: str = "user_120k") -> Dataset:
    """iNaturalist-User-120k: 120,300 images of 1,203 species by 9,275 observers; images are decoded on access.

    Args:
      data_dir: folder with TFF's `iNaturalist_train.csv` and `iNaturalist_test.csv`, or `federated_train.csv` and
        `test.csv`, and the images of the 2017 competition at any depth.
      users: name of the column of clients in TFF's list (`user_120k`, `geo_100`, ...).

    Source: https://arxiv.org/abs/2003.08082.
    """
    source = "http://storage.googleapis.com/gresearch/federated-vision-datasets/inaturalist-user-120k.zip"
    lists = ("iNaturalist_train.csv", "iNaturalist_test.csv"), ("federated_train.csv", "test.csv")
    return load(
        "inaturalist", *find("inaturalist", data_dir, ("inat*",), lists, (users, "user_id"), source), size, resize, 1203
    )
