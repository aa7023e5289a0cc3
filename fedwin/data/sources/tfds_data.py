"""Prepared TensorFlow Datasets, read without TensorFlow, https://www.tensorflow.org/datasets/data_source."""

import importlib
import pathlib
import warnings
from typing import Literal

import numpy as np

from fedwin.data.checks import as_labels
from fedwin.data.dataset import DATASETS, Dataset, Examples
from fedwin.data.example_source import Images
from fedwin.data.formats import files
from fedwin.data.sources import cifar, folder, mnist
from fedwin.errors import UserError

# Per-channel (mean, std); `auto` stands for the entry with the builder's name, if there is one.
CONSTANTS: dict[str | None, tuple[tuple[float, ...] | None, tuple[float, ...] | None]] = {
    **cifar.CONSTANTS,
    "mnist": mnist.MOMENTS,
    "imagenet": folder.IMAGENET,
    None: (None, None),
}


@DATASETS.register("tfds", how="prepared as array_record; TensorFlow is not needed to read it")
def tfds(
    data_dir,
    *,
    name: str,
    train: str = "train",
    test: str = "test",
    x: str = "image",
    y: str = "label",
    constants: Literal["auto", "cifar10", "cifar100", "ima", "mnist", "imagenet"] | None = "auto",
    transpose: bool | None = None,
) -> Dataset:
    """Any builder prepared as array_record (`download_and_prepare(file_format='array_record')`).

    TFDS shuffles records, so published splits that count rows of the original archive do not apply. For CIFAR-100 the
    label that is not y is available as feature 'coarse' or 'fine', for Pachinko allocation.

    Args:
      data_dir: folder that contains `<name>/<version>`.
      name: the builder, such as `cifar10`, `emnist/byclass` or, for a certain version, `cifar10:3.0.2`.
      train: name of the training split.
      test: name of the test split.
      x: name of the input feature.
      y: name of the label feature.
      constants: normalization constants, 'cifar10', 'cifar100', 'ima', 'mnist', 'imagenet' or none; 'auto' selects
        those of the builder's name (cifar10, cifar100, mnist), and none for others.
      transpose: whether rows and columns of images are exchanged; None does so for emnist, which is stored transposed.

    Raises:
      UserError: not prepared there, not array_record, or features and splits that do not exist.
    """
    location = prepared_folder(files.folders(data_dir)[0], str(name))
    package = tensorflow_datasets()
    with files.reading(location, "tfds cannot read it", "prepare it there as array_record"):
        builder = package.builder_from_directory(location)
        keys = {"x": x, "y": y, **second_label_level(builder.info.features, y)}
        train_side, test_side = (read(builder, split, keys) for split in (train, test))
        classes = builder.info.features[y].num_classes
        labels = tuple(getattr(builder.info.features[y], "names", None) or ())
    mean, std = constants_of(builder.name, constants, train_side["x"])
    if builder.name == "emnist" if transpose is None else transpose:
        for side in (train_side, test_side):
            if side["x"].ndim < 3:
                raise UserError(f"tfds: transpose=true exchanges axes of images; '{x}' of '{builder.name}' is not one.")
            side["x"] = np.ascontiguousarray(side["x"].swapaxes(1, 2))
    return Dataset(
        f"tfds_{builder.name}", train_side, test_side, classes, mean=mean, std=std, class_names=labels, verified=False
    )


def read(builder, split: str, keys: dict[str, str]) -> Examples:
    """Reads one split into arrays [N, ...], given key -> feature of the builder; 'x' is the input, others are labels.

    Raises:
      UserError: no such feature, no examples, inputs of different shapes, or labels that are not whole numbers.
    """
    source = builder.as_data_source(split=split)
    if not set(keys.values()) <= set(builder.info.features):
        names = ", ".join(sorted(builder.info.features))
        raise UserError(f"tfds: '{builder.name}' has the features {names}, not {' and '.join(keys.values())}.")
    if not len(source):
        raise UserError(f"tfds: '{builder.name}' has no example in split '{split}'.")
    where = f"tfds: '{builder.name}', {split}"
    first = np.asarray(source[0][keys["x"]])
    result = {key: np.zeros(len(source), np.int64) for key in keys}
    result["x"] = np.zeros((len(source), *first.shape), first.dtype)
    for row in range(len(source)):
        record = source[row]
        example = {key: np.asarray(record[name]) for key, name in keys.items()}
        if (shape := example["x"].shape) != first.shape:
            raise UserError(f"{where}, record {row}: '{keys['x']}' has shape {shape}, before {first.shape}.")
        for key, value in example.items():
            result[key][row] = value
    return {key: value if key == "x" else as_labels(value, where) for key, value in result.items()}


def prepared_folder(root: pathlib.Path, name: str) -> pathlib.Path:
    """Finds the newest prepared version of a builder, or that in its name, below a folder; its code is not needed.

    Raises:
      UserError: it is not prepared there.
    """
    inner, _, version = name.partition(":")
    locations = [root, root / inner] + ([root / inner / version] if version else [])
    versions = [
        info.parent
        for location in locations
        for info in [*location.glob("dataset_info.json"), *location.glob("*.*.*/dataset_info.json")]
    ]
    versions = [folder for folder in versions if not version or folder.name == version]
    if not versions:
        raise UserError(
            f"tfds: '{name}' is not prepared under {root}; prepare it there with file_format='array_record'."
        )
    return max(versions, key=lambda folder: [int(part) if part.isdigit() else 0 for part in folder.name.split(".")])


def second_label_level(features, y: str) -> dict[str, str]:
    """Returns key -> name of the label on the other level, for builders with coarse and fine labels, else {}."""
    if "coarse_label" not in features or y not in ("label", "coarse_label"):
        return {}
    return {"coarse": "coarse_label"} if y == "label" else {"fine": "label"}


def constants_of(builder: str, constants: str | None, images: np.ndarray | Images):
    """Returns (mean, std) of a key of CONSTANTS, or of the builder's name for 'auto', for images [N, ..., C].

    Raises:
      UserError: the constants have another number of channels.
    """
    if constants == "auto":
        constants = builder if builder in CONSTANTS and images.dtype == np.uint8 else None
    mean, std = CONSTANTS[constants]
    if mean and len(mean) not in (1, images.shape[-1]):
        raise UserError(f"constants={constants} has {len(mean)} channels; '{builder}' has {images.shape[-1]}.")
    return mean, std


def tensorflow_datasets():
    """Imports the package, silencing warnings about deprecations inside it; slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("tensorflow_datasets")
