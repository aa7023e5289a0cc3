"""Data sets of Hugging Face `datasets`, read from disk, https://huggingface.co/docs/datasets/loading.

A folder holds a saved DatasetDict (dataset_dict.json), a saved Dataset (state.json), or Parquet or Arrow files whose
names or folders contain those of the splits, such as data/train-00000-of-00002.parquet.
"""

import importlib
import json
import os
import pathlib
import re
from typing import Any, Literal, NamedTuple

import numpy as np

from fedwin.data.checks import as_labels, check_task, count_classes
from fedwin.data.dataset import DATASETS, Dataset, Partition, Task
from fedwin.data.example_source import Images, Item, Member, decode_whole
from fedwin.data.formats import clients, files
from fedwin.data.sources import shakespeare
from fedwin.data.sources.arrays import by_client
from fedwin.data.sources.tfds_data import constants_of
from fedwin.errors import UserError, require
from fedwin.registry.ranges import PositiveInt

# Files of splits, and number of names in error messages.
SUFFIXES = (".parquet", ".arrow")
LISTED = 6
# Rows that are converted at a time: `datasets` makes int64 of all whole numbers.
CHUNK = 4096


@DATASETS.register("hf", how="`save_to_disk`, Parquet or Arrow files; `pip install 'fedwin[hf]'`, never downloads")
def hf(
    data_dir,
    *,
    name: str,
    x: str = "image",
    y: str | None = None,
    client: str | None = None,
    train: str = "train",
    test: str = "test",
    constants: Literal["cifar10", "cifar100", "ima", "mnist", "imagenet"] | None = None,
    size: PositiveInt | None = None,
    resize: PositiveInt | None = None,
    channels: Literal[1, 3] | None = None,
    length: PositiveInt = 80,
    num_classes: PositiveInt | None = None,
    task: Task | None = None,
) -> Dataset:
    """Any folder that `save_to_disk` has written, or of Parquet or Arrow files; the network is never used.

    Columns of images become uint8 [N, H, W, C], lists of numbers arrays, and texts rows of characters whose labels are
    the next characters, as in `shakespeare`.

    Args:
      data_dir: folder that contains the data set; not needed if `name` is found without it.
      name: folder of the data set, absolute or relative to data_dir.
      x: column of the inputs: images, lists of numbers, or texts.
      y: column of the labels: classes, whole numbers or texts; 'label' by default. Texts as inputs have none.
      client: column of client ids, for a data set with its own clients.
      train: name of the training split.
      test: name of the test split, such as validation.
      constants: normalization constants, 'cifar10', 'cifar100', 'ima', 'mnist', 'imagenet' or none.
      size: side of images in pixels, cropped from the center of the scaled image and decoded on access; by default all
        images must have one shape, and are decoded at once.
      resize: pixels that the short side is scaled to, with size.
      channels: 1 or 3; those of the first image by default.
      length: number of characters per row, for texts.
      num_classes: number of classes; by default those that the data set names, else the largest label + 1.

    Raises:
      UserError: no such folder, split or column, missing values, or columns of another kind.
    """
    folder = find_folder(str(name), data_dir)
    splits = [Split(open_split(folder, str(split)), f"hf: {folder}, {split}") for split in (train, test)]
    title = f"hf_{folder.resolve().name}"
    for split in splits:
        split.check(x)
    if client is not None:
        splits[0].check(client)
    if splits[0].kind(x) == "text":
        if y is not None:
            raise UserError(
                f"hf: '{x}' is text, whose labels are its next characters; leave out y=, or save token ids as lists of "
                f"numbers."
            )
        return _characters(title, splits, x, client, length)
    y = y or "label"
    for split in splits:
        split.check(y)
    labels, names = _labels(splits, y, task)
    inputs: list[np.ndarray | Images] = []
    for split in splits:
        # Images of the test split have the shape of the training images.
        shape = inputs[0].shape[1:] if inputs else None
        is_image = split.kind(x) == "image"
        inputs.append(_images(split, x, folder, size, resize, channels, shape) if is_image else split.numbers(x))
    mean, std = constants_of(title, constants, inputs[0])
    natural, test_natural = (split.clients(client) for split in splits)
    both = np.concatenate([values.reshape(-1) for values in labels])
    return Dataset(
        title,
        {"x": inputs[0], "y": labels[0]},
        {"x": inputs[1], "y": labels[1]},
        count_classes(both, num_classes or len(names) or None, task),
        task=check_task(labels[0], task, splits[0].where),
        mean=mean,
        std=std,
        natural=natural,
        class_names=names,
        verified=False,
        test_natural=test_natural,
    )


class Split(NamedTuple):
    """A split of a data set.

    Attributes:
      table: datasets.Dataset.
      where: data set and split, for messages.
    """

    table: Any
    where: str

    def check(self, column: str) -> None:
        """Raises UserError if a column does not exist or has missing values."""
        if column not in (names := self.table.column_names):
            raise UserError(f"{self.where}: there is no column '{column}'; it has {', '.join(names)}.")
        values = self.table.data.column(column)
        if values.null_count:
            row = int(values.is_null().to_numpy().argmax())
            raise UserError(f"{self.where}, record {row}: '{column}' is missing; remove such records.")
        if not len(values):
            raise UserError(f"{self.where}: there is no example.")

    def kind(self, column: str) -> str:
        """Returns 'image', 'text', 'number' (also of a class) or 'numbers'."""
        feature = self.table.features[column]
        if type(feature).__name__ == "Image" or (isinstance(feature, dict) and {"bytes", "path"} <= feature.keys()):
            return "image"
        if type(feature).__name__ not in ("Value", "ClassLabel"):
            return "numbers"
        return "text" if feature.dtype in ("string", "large_string", "string_view") else "number"

    def column(self, column: str) -> list:
        """Returns a column as Python objects, images undecoded."""
        with files.reading(f"hf: column '{column}'", "can't be read", "save the data set again"):
            return self.table.with_format("arrow")[:].column(column).to_pylist()

    def clients(self, client: str | None) -> Partition | None:
        """Returns the clients of the split; None without a column of ids."""
        if client is None or client not in self.table.column_names:
            return None
        return by_client(np.asarray(self.column(client)), len(self.table), self.where)

    def numbers(self, column: str) -> np.ndarray:
        """Returns lists of numbers as an array [N, ...]; floats become float32, whole numbers but uint8 int32."""
        result: list[np.ndarray] = []
        plain = self.table.select_columns([column]).with_format("numpy")
        stored = self.table.data.schema.field(column).type
        while hasattr(stored, "value_type"):
            stored = stored.value_type
        for start in range(0, len(self.table), CHUNK):
            part = np.asarray(plain[start : start + CHUNK][column])
            shape = result[0].shape[1:] if result else part.shape[1:]
            if part.dtype.kind not in "iufb" or part.shape[1:] != shape:
                raise UserError(
                    f"{self.where}: '{column}' is not a list of as many numbers in every record; save it as such."
                )
            kind = np.uint8 if str(stored) == "uint8" else np.float32 if part.dtype.kind == "f" else np.int32
            if kind == np.int32 and part.size and (part.min() < -(1 << 31) or part.max() >= 1 << 31):
                raise UserError(f"{self.where}: '{column}' has numbers beyond 32 bits.")
            result.append(part.astype(kind))
        return np.concatenate(result)


def _labels(splits: list[Split], y: str, task) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Returns (labels [N] or [N, T] of each split, names of the classes or ()); truth values become 0 and 1."""
    columns = [split.numbers(y) if split.kind(y) == "numbers" else np.asarray(split.column(y)) for split in splits]
    if splits[0].kind(y) == "text":
        known = np.unique(np.concatenate(columns))
        return [np.searchsorted(known, values).astype(np.int32) for values in columns], tuple(known.tolist())
    names, other = (tuple(getattr(split.table.features[y], "names", None) or ()) for split in splits)
    if names != other:
        raise UserError(f"{splits[1].where}: '{y}' has other classes than in the training split; save both together.")
    whole = [values.astype(np.int32) if values.dtype == bool else values for values in columns]
    return [as_labels(values, split.where, task) for values, split in zip(whole, splits)], names


def _images(split: Split, column: str, folder: pathlib.Path, size, resize, channels, shape) -> np.ndarray | Images:
    """Returns images [N, H, W, C]: decoded on access with a size, else at once.

    The shape (height, width, channels) is that of the training images, or None for that of the first one.
    """
    items: list[Item] = []
    for row, value in enumerate(split.column(column)):
        if value.get("bytes") is not None:
            items.append(Member(f"{split.where}, record {row}", value["bytes"]))
        elif value.get("path"):
            items.append(str(folder / value["path"]))
        else:
            raise UserError(
                f"{split.where}, record {row}: '{column}' has neither bytes nor a path; remove such records."
            )
    channels = shape[-1] if shape else channels or decode_whole(items[0]).shape[-1]
    if size is not None:
        return Images(items, size, resize, channels)
    if resize is not None:
        raise UserError("hf: resize= belongs to size=; give both.")
    shape = shape or decode_whole(items[0], channels).shape
    result = np.zeros((len(items), *shape), np.uint8)
    for row, item in enumerate(items):
        image = decode_whole(item, channels)
        if image.shape != shape:
            raise UserError(
                f"{split.where}, record {row}: an image of {image.shape[0]} x {image.shape[1]} pixels, before "
                f"{shape[0]} x {shape[1]}; give size= to scale and crop them."
            )
        result[row] = image
    return result


def _characters(title: str, splits: list[Split], x: str, client: str | None, length: int) -> Dataset:
    """Returns rows of characters and next characters, per client if there is a column of client ids."""
    sides: list[tuple] = []
    for split in splits:
        texts = [text.encode() for text in split.column(x)]
        part = split.clients(client)
        if part is None or part.ids is None:
            sides.append((shakespeare.rows(texts, length), None))
            continue
        own = lambda k, part=part, texts=texts: [texts[row] for row in part.client(k)]
        stream = ((str(who), shakespeare.rows(own(k), length)) for k, who in enumerate(part.ids))
        sides.append(clients.flatten(stream, split.where))
    fields = {"task": "sequence", "verified": False, "accuracies": shakespeare.ACCURACIES}
    return Dataset.of_clients(title, sides, shakespeare.VOCABULARY, **fields)


def package():
    """Imports `datasets` in its offline mode; raises UserError if it is not installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
    require("hf", "datasets", "hf")
    return importlib.import_module("datasets")


def find_folder(name: str, data_dir) -> pathlib.Path:
    """Returns the folder `name`, in data_dir or the current folder; raises UserError if there is none."""
    own = pathlib.Path(name).expanduser()
    candidates = [*([pathlib.Path(data_dir) / own] if data_dir else []), own]
    for path in candidates:
        if path.is_dir():
            return path
    searched = " or ".join(map(str, dict.fromkeys(candidates)))
    raise UserError(
        f"hf: there is no folder {searched}; data sets are read from disk and never downloaded: save it where there is "
        f"a network, datasets.load_dataset('{name}').save_to_disk('FOLDER'), and give name=FOLDER."
    )


def open_split(folder: pathlib.Path, split: str):
    """Opens a split of the data set in a folder as datasets.Dataset; Arrow files are memory-mapped.

    Raises:
      UserError: no such split, or files that can't be read.
    """
    datasets = package()
    with files.reading(f"hf: {folder}, {split}", "can't be read", "save it again"):
        if (folder / "dataset_dict.json").is_file():
            names = json.loads((folder / "dataset_dict.json").read_text())["splits"]
            if split not in names:
                raise _missing(folder, split, names)
            return datasets.load_from_disk(str(folder / split))
        if (folder / "state.json").is_file():
            name = json.loads((folder / "state.json").read_text()).get("_split") or "train"
            if split != name:
                raise _missing(folder, split, [name])
            return datasets.load_from_disk(str(folder))
        return datasets.concatenate_datasets([_open_file(datasets, path) for path in files_of(folder, split)])


def _open_file(datasets, path: pathlib.Path):
    if path.suffix == ".arrow":
        return datasets.Dataset.from_file(str(path))
    table = importlib.import_module("pyarrow.parquet").read_table(path)
    return datasets.Dataset(datasets.table.InMemoryTable(table))


def files_of(folder: pathlib.Path, split: str) -> list[pathlib.Path]:
    """Returns the Parquet or Arrow files of a split, up to two folders below, in the order of their names.

    Raises:
      UserError: there are none, or they lie in several folders.
    """
    found = [path for pattern in ("*", "*/*", "*/*/*") for path in folder.glob(pattern) if path.suffix in SUFFIXES]
    found = sorted(path for path in found if not path.name.startswith("cache-"))
    named = re.compile(rf"(?:^|[-_.]){re.escape(split)}(?:$|[-_.])")
    chosen = [path for path in found if named.search(path.stem) or split in path.relative_to(folder).parent.parts]
    if not chosen:
        raise _missing(folder, split, [str(path.relative_to(folder)) for path in found])
    parents = dict.fromkeys(path.parent for path in chosen)
    if len(parents) > 1:
        listed = ", ".join(str(parent.relative_to(folder)) for parent in parents)
        raise UserError(f"hf: {folder} has files of '{split}' in {listed}; give one of these folders as name=.")
    return chosen


def _missing(folder: pathlib.Path, split: str, available) -> UserError:
    shown = ", ".join(available[:LISTED]) + (" ..." if len(available) > LISTED else "")
    contents = f"it has {shown}" if available else "it has no saved data set, Parquet or Arrow files"
    return UserError(f"hf: {folder} has no split '{split}'; {contents}. Name the splits with train= and test=.")
