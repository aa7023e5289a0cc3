"""Folders and tar archives of images with lists in CSV files.

Landmarks-User-160k and iNaturalist-User-120k: Hsu et al. 2020, https://arxiv.org/abs/2003.08082. A list has the columns
`user_id,image_id,class` (training) and `image_id,class` (test).
"""

import csv
import io
import os
import pathlib
import tarfile
import warnings

import numpy as np

from fedwin.data.dataset import Dataset, Partition, offsets
from fedwin.data.formats import checksums, files
from fedwin.data.reader import Images, Span
from fedwin.data.registries import DATASETS
from fedwin.errors import UserError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def images_below(place) -> dict[str, "str | Span | bytes"]:
    """Returns relative name -> image of every image file in a folder or in a tar or zip archive, without decoding any.

    Members of an uncompressed tar are read where they lie; those of other archives are kept as bytes.
    """
    place = pathlib.Path(place)
    if place.is_dir():
        found = {}
        for folder, _, names in os.walk(place):
            for name in names:
                if name.lower().endswith(SUFFIXES):
                    path = os.path.join(folder, name)
                    found[os.path.relpath(path, place).replace(os.sep, "/")] = path
        return found
    wanted = lambda name: name.lower().endswith(SUFFIXES)
    try:
        with tarfile.open(place, "r:") as archive:
            return {
                entry.name: Span(str(place), entry.offset_data, entry.size)
                for entry in archive
                if entry.isfile() and wanted(entry.name)
            }
    except (tarfile.TarError, EOFError, OSError):
        return files.members(place, wanted)


def by_name(images, wanted: set[str]) -> dict[str, list[str]]:
    """Returns what a list may call an image -> the image files that this fits.

    A list names the file by its path below the folder or, where that fits none, by its bare name, each with or without
    suffix.

    Args:
      images: (folder or archive, path in it) of the image files.
      wanted: what the lists say; nothing else is indexed.
    """
    paths, bare = {}, {}
    for place, name in sorted(images):
        for table, text in ((paths, name), (bare, name.rsplit("/", 1)[-1])):
            for key in {text, text.rsplit(".", 1)[0]} & wanted:
                table.setdefault(key, []).append(os.path.join(place, name))
    return {**bare, **paths}


def content_of(blob: bytes) -> csv.DictReader:
    """Returns the records of a list."""
    return csv.DictReader(io.StringIO(blob.decode("utf-8-sig", "replace"), newline=""), strict=True)


def columns_of(blob: bytes) -> list[str]:
    """Returns the column names of a list."""
    try:
        return list(content_of(blob).fieldnames or ())
    except csv.Error:
        return []  # reading the list says what is wrong with it


def read_list(path, blob: bytes, user_column: str | None) -> tuple[list[str], list[str] | None, np.ndarray]:
    """Returns image ids, users (None without a column) and classes of a list; rows whose user is `NA` are skipped.

    Args:
      path: what to call the list in an error line.
      blob: its decoded content.

    Raises:
      UserError: a column or value is missing, or an image is listed twice.
    """
    reader = content_of(blob)
    images, users, classes = [], [], []
    seen = set()
    try:
        columns = {"image_id", "class"} | ({user_column} if user_column else set())
        absent = sorted(columns - set(reader.fieldnames or ()))
        if absent:
            raise UserError(
                f"{path}: column {', '.join(absent)} is missing; it has {', '.join(reader.fieldnames or ['none'])}."
            )
        for record in reader:
            if None in (record[column] for column in columns):
                raise UserError(f"{path}, line {reader.line_num}: it has fewer values than the {len(record)} columns.")
            if user_column and record[user_column] in ("NA", ""):
                continue
            classes.append(class_of(record["class"], f"{path}, line {reader.line_num}"))
            if record["image_id"] in seen:
                raise UserError(f"{path}, line {reader.line_num}: image '{record['image_id']}' is listed twice.")
            seen.add(record["image_id"])
            images.append(record["image_id"])
            users.append(record[user_column] if user_column else "")
    except csv.Error as error:
        raise UserError(
            f"{path}, line {reader.line_num + 1}: not a CSV file ({error}); is a quote left open?"
        ) from error
    if not images:
        raise UserError(f"{path}: it lists no image.")
    return images, users if user_column else None, np.array(classes, np.int32)


def class_of(text: str, where: str) -> int:
    """Returns a class given as `5` or, as tables with gaps are written, `5.0`."""
    try:
        number = float(text)
        if number == int(number) and 0 <= number < 1 << 31:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise UserError(f"{where}: class '{text}' is not a whole number >= 0.")


def located(path, images: list[str], index: dict[str, list[str]], found: dict) -> list:
    """Returns the image of every id; raises UserError naming the list and the first image missing or ambiguous.

    Args:
      index: as from by_name.
      found: name -> image.
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
    name: str, train_list, test_list, groups, size: int, resize: int, num_classes: int | None, user_column
) -> Dataset:
    """Builds a data set whose images stay in their files and are decoded when used.

    Args:
      train_list, test_list: (what to call it, content) of the lists.
      groups: folders and archives of the images; one that an earlier group has is not looked for in the later ones.

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
    wanted, found, index = {*train_ids, *test_ids}, {}, {}
    for group in groups:
        # A shard's name goes before those of its members, so that the same name in two shards stays two images.
        held = {(place, name): image for place in group for name, image in images_below(place).items()}
        index |= by_name(held, wanted - index.keys())
        found |= {os.path.join(*key): held[key] for key in held}
    make = lambda path, ids, labels: {"x": Images(located(path, ids, index, found), size, resize), "y": labels}
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


def find_list(dataset: str, folder: pathlib.Path, names) -> tuple | None:
    """Returns (what to call it, content) of the first list that lies in a folder, or in a zip archive there."""
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
                return archive / name, held[name]
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
        if test_list:
            header = columns_of(train_list[1])
            column = next((column for column in user_columns if column in header), user_columns[0])
            place = next((folder / sub for sub in ("images", "train") if (folder / sub).is_dir()), folder)
            shards = [shard for where in dict.fromkeys((folder, place)) for shard in sorted(where.glob("images_*.tar"))]
            return from_lists(name, train_list, test_list, [[place], shards], size, resize, num_classes, column)
    raise files.missing(name, data_dir, f"{train_names[0]} and {test_names[0]}", source)


LISTS = "http://storage.googleapis.com/gresearch/federated-vision-datasets/landmarks-user-160k.zip"
SMALL = "https://storage.googleapis.com/tff-datasets-public/"


@DATASETS.register(
    "landmarks",
    title="Landmarks-User-160k",
    how="lists download; images by hand",
    sizes="1,262 / 164,172 / those in `test.csv`",
    prepared="not measured: file not available",
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
def landmarks(data_dir, *, size: int = 224, resize: int = 256, small: bool = False) -> Dataset:
    """Landmarks-User-160k: 164,172 images of 2,028 landmarks by 1,262 photographers; images decoded when used.

    data_dir holds `federated_train.csv`, `test.csv` and the images named there as `<image_id>.jpg`, at any depth, or
    the shards `images_NNN.tar` that hold them.

    Args:
      size, resize: pixels cut from the centre of the image scaled to a short side of `resize`.
      small: the 233 clients and 203 classes of gld23k (`mini_gld_train_split.csv`, `mini_gld_test.csv`).
    """
    lists = (
        (("mini_gld_train_split.csv",), ("mini_gld_test.csv",)) if small else (("federated_train.csv",), ("test.csv",))
    )
    source = "http://storage.googleapis.com/gresearch/federated-vision-datasets/landmarks-user-160k.zip"
    return build(
        "landmarks", data_dir, ("landmark*", "gld*"), *lists, size, resize, 203 if small else 2028, ("user_id",), source
    )


@DATASETS.register(
    "inaturalist",
    title="iNaturalist-User-120k",
    how="by hand",
    sizes="9,275 / 120,300 / 35,641",
    prepared="not measured: file not available",
    by_hand="iNaturalist_{train,test}.csv, and train_val_images.tar.gz and test2017.tar.gz from "
    "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/",
    checksums={
        "iNaturalist_train.csv": ("md5", "63d5a41699434bc2b13f5853f3764c18"),
        "iNaturalist_test.csv": ("md5", "bcf08a5a740ee76dac4e5af668081891"),
        "train_val_images.tar.gz": ("md5", "7c784ea5e424efaec655bd392f87301f"),
        "test2017.tar.gz": ("md5", "7d9b096fa1cd94d67a0fa779ea301234"),
    },
)
def inaturalist(data_dir, *, size: int = 224, resize: int = 256, users: str = "user_120k") -> Dataset:
    """iNaturalist-User-120k: 120,300 images of 1,203 species by 9,275 observers; images decoded when used.

    data_dir holds TFF's `iNaturalist_train.csv` and `iNaturalist_test.csv`, or `federated_train.csv` and `test.csv`,
    and the images of the 2017 competition at any depth.

    Args:
      size, resize: as for landmarks.
      users: the column of TFF's list that names the clients (`user_120k`, `geo_100`, ...).
    """
    source = "http://storage.googleapis.com/gresearch/federated-vision-datasets/inaturalist-user-120k.zip"
    return build(
        "inaturalist",
        data_dir,
        ("inat*",),
        ("iNaturalist_train.csv", "federated_train.csv"),
        ("iNaturalist_test.csv", "test.csv"),
        size,
        resize,
        1203,
        (users, "user_id"),
        source,
    )


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
      train, test: the lists, in data_dir.
      images: the folder or archive of the images, in data_dir.
      size, resize: as for landmarks.
      num_classes: the largest class + 1 by default.
      user: the column that names the clients; without it the data set has no clients of its own.
    """
    root = files.folders(data_dir)[0]
    lists = [(root / name, files.read(root / name)) for name in (train, test)]
    column = user if user in columns_of(lists[0][1]) or user != "user_id" else None
    return from_lists("image_folder", *lists, [[root / images]], size, resize, num_classes, column)
