"""Prepared TensorFlow Datasets folders, read without TensorFlow, https://www.tensorflow.org/datasets/data_source."""

import importlib
import pathlib
import warnings

import numpy as np

from fedwin.data.checks import as_labels
from fedwin.data.dataset import DATASETS, Dataset, Examples
from fedwin.data.formats import files
from fedwin.data.sources import cifar, folder
from fedwin.errors import UserError

# Per-channel (mean, std); `auto` is the builder's own name here, where it has one.
CONSTANTS: dict[str | None, tuple[tuple[float, ...] | None, tuple[float, ...] | None]] = {
    **cifar.CONSTANTS,
    "mnist": ((0.1307,), (0.3081,)),
    "imagenet": folder.IMAGENET,
    None: (None, None),
}


@DATASETS.register(
    "tfds",
    title="any prepared TFDS builder",
    flag="`tfds:name=NAME`",
    how="prepared as array_record; TensorFlow is not needed to read it",
)
def tfds(
    data_dir,
    *,
    name: str,
    train: str = "train",
    test: str = "test",
    x: str = "image",
    y: str = "label",
    constants: str | None = "auto",
    transpose: bool | None = None,
) -> Dataset:
    """Any builder that was prepared as array_record (`download_and_prepare(file_format='array_record')`).

    TFDS shuffles records, so published splits that count rows of the original archive do not apply to its order. Of
    CIFAR-100 the label that y is not stays as the feature 'coarse' or 'fine', which Pachinko allocation reads.

    Args:
      data_dir: the folder that holds `<name>/<version>`.
      name: the builder, such as `cifar10`, `emnist/byclass` or, for one version, `cifar10:3.0.2`.
      train: name of the training split.
      test: name of the test split.
      x: name of the input feature.
      y: name of the label feature.
      constants: normalisation, 'cifar10', 'cifar100', 'ima', 'mnist', 'imagenet' or none; 'auto' is that of the data
        set of the same name (cifar10, cifar100, mnist), and none for others.
      transpose: whether rows and columns of images are exchanged; by default those of emnist are, which is stored
        transposed.

    Raises:
      UserError: not prepared there, not array_record, or features and splits that do not exist.
    """
    if constants not in (*CONSTANTS, "auto"):
        raise UserError(f"tfds: constants={constants}; they are auto, none, {', '.join(filter(None, CONSTANTS))}.")
    place = prepared_folder(files.folders(data_dir)[0], str(name))
    package = tensorflow_datasets()
    try:
        builder = package.builder_from_directory(place)
        keys = {"x": x, "y": y, **second_label_level(builder.info.features, y)}
        train_side, test_side = (read(builder, split, keys) for split in (train, test))
        classes = builder.info.features[y].num_classes
        labels = tuple(getattr(builder.info.features[y], "names", None) or ())
    except UserError:
        raise
    except Exception as error:  # the package raises many kinds, and each means that the folder is not as it should be
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"tfds: cannot read {place} ({first}); prepare it there as array_record.") from error
    mean, std = constants_of(builder.name, constants, train_side["x"])
    if builder.name == "emnist" if transpose is None else transpose:
        for side in (train_side, test_side):
            side["x"] = transpose_images(builder.name, x, side["x"])
    return Dataset(
        f"tfds_{builder.name}",
        train_side,
        test_side,
        classes,
        mean=mean,
        std=std,
        class_names=labels,
        verified=False,
    )


def tensorflow_datasets():
    """Imports the package, which is slow and warns of deprecations inside itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("tensorflow_datasets")


def constants_of(builder: str, constants: str | None, images: np.ndarray):
    """Returns (mean, std) per channel.

    Args:
      builder: its name.
      constants: a key of CONSTANTS, or 'auto'.
      images: what they normalise [N, ..., C].

    Raises:
      UserError: when they are of another number of channels.
    """
    if constants == "auto":
        constants = builder if builder in CONSTANTS and images.dtype == np.uint8 else None
    mean, std = CONSTANTS[constants]
    if mean and len(mean) not in (1, images.shape[-1]):
        raise UserError(f"tfds: constants={constants} are of {len(mean)} channels; '{builder}' has {images.shape[-1]}.")
    return mean, std


def transpose_images(builder: str, feature: str, images: np.ndarray) -> np.ndarray:
    """Returns images with rows and columns exchanged; raises UserError for what has none."""
    if images.ndim < 3:
        raise UserError(f"tfds: transpose=true needs images; '{feature}' of '{builder}' holds none.")
    return np.ascontiguousarray(images.swapaxes(1, 2))


def second_label_level(features, y: str) -> dict[str, str]:
    """Returns key -> name of the label on the other level, for builders that have labels on two."""
    if "coarse_label" not in features or y not in ("label", "coarse_label"):
        return {}
    return {"coarse": "coarse_label"} if y == "label" else {"fine": "label"}


def prepared_folder(root: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the folder of the newest prepared version; the builder's own code is not needed to read it."""
    inner, _, version = name.partition(":")
    places = [root, root / inner] + ([root / inner / version] if version else [])
    found = [
        info.parent
        for place in places
        for info in [*place.glob("dataset_info.json"), *place.glob("*.*.*/dataset_info.json")]
    ]
    found = [folder for folder in found if not version or folder.name == version]
    if not found:
        raise UserError(
            f"tfds: '{name}' is not prepared under {root}; prepare it there with file_format='array_record'."
        )
    return max(found, key=lambda folder: [int(part) if part.isdigit() else 0 for part in folder.name.split(".")])


def read(builder, split: str, keys: dict[str, str]) -> Examples:
    """Reads one split into arrays.

    Args:
      builder: the package's DatasetBuilder.
      split: name of the split.
      keys: key -> feature of the builder; 'x' is the input, the others are labels.
    """
    source = builder.as_data_source(split=split)
    if not set(keys.values()) <= set(builder.info.features):
        known = ", ".join(sorted(builder.info.features))
        raise UserError(f"tfds: '{builder.name}' has the features {known}, not {' and '.join(keys.values())}.")
    if not len(source):
        raise UserError(f"tfds: '{builder.name}' has no example in split '{split}'.")
    first = np.asarray(source[0][keys["x"]])
    result = {key: np.zeros(len(source), np.int64) for key in keys} | {
        "x": np.zeros((len(source), *first.shape), first.dtype)
    }
    for row in range(len(source)):
        example = source[row]
        value = np.asarray(example[keys["x"]])
        if value.shape != first.shape:
            raise UserError(
                f"tfds: '{builder.name}', {split}, record {row}: '{keys['x']}' has shape {value.shape}, "
                f"before {first.shape}."
            )
        result["x"][row] = value
        for key in keys.keys() - {"x"}:
            result[key][row] = example[keys[key]]
    where = f"tfds: '{builder.name}', {split}"
    return {key: value if key == "x" else as_labels(value, where) for key, value in result.items()}
