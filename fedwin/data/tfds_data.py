"""Prepared TensorFlow Datasets folders, read without TensorFlow, https://www.tensorflow.org/datasets/data_source."""

import pathlib
import warnings

import numpy as np

from fedwin.data import files
from fedwin.data.catalog import DATASETS
from fedwin.data.dataset import Dataset, Examples
from fedwin.errors import UserError


@DATASETS.register("tfds")
def tfds(
    data_dir, *, name: str, train: str = "train", test: str = "test", x: str = "image", y: str = "label"
) -> Dataset:
    """Any builder that was prepared as array_record (`download_and_prepare(file_format='array_record')`).

    TFDS shuffles records, so published splits that count rows of the original archive do not apply to its order.

    Args:
      data_dir: the folder that holds `<name>/<version>`.
      name: the builder, such as `cifar10`, `emnist/byclass` or, for one version, `cifar10:3.0.2`.
      train, test: names of the splits.
      x, y: names of the features.

    Raises:
      UserError: not prepared there, not array_record, or features and splits that do not exist.
    """
    folder = prepared(files.folders(data_dir)[0], str(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the package
        import tensorflow_datasets
    try:
        builder = tensorflow_datasets.builder_from_directory(folder)
        sides = [read(builder, split, x, y) for split in (train, test)]
        classes = builder.info.features[y].num_classes
        labels = tuple(getattr(builder.info.features[y], "names", None) or ())
    except UserError:
        raise
    except Exception as error:  # the package raises many kinds, and each means that the folder is not as it should be
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"tfds: cannot read {folder} ({first}); prepare it there as array_record.")
    scale = ((0.0,), (1.0,)) if sides[0]["x"].dtype == np.uint8 else (None, None)
    return Dataset(
        f"tfds_{builder.name}", *sides, classes, mean=scale[0], std=scale[1], class_names=labels, verified=False
    )


def prepared(root: pathlib.Path, name: str) -> pathlib.Path:
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


def read(builder, split: str, x: str, y: str) -> Examples:
    """Reads one split into arrays."""
    source = builder.as_data_source(split=split)
    if x not in builder.info.features or y not in builder.info.features:
        raise UserError(
            f"tfds: '{builder.name}' has the features {', '.join(sorted(builder.info.features))}, not {x} and {y}."
        )
    inputs, labels = None, np.zeros(len(source), np.int32)
    for row in range(len(source)):
        example = source[row]
        value = np.asarray(example[x])
        if inputs is None:
            inputs = np.zeros((len(source), *value.shape), value.dtype)
        if value.shape != inputs.shape[1:]:
            raise UserError(
                f"tfds: '{builder.name}', {split}, record {row}: '{x}' has shape {value.shape}, "
                f"before {inputs.shape[1:]}."
            )
        inputs[row], labels[row] = value, example[y]
    if inputs is None:
        raise UserError(f"tfds: '{builder.name}' has no example in split '{split}'.")
    return {"x": inputs, "y": labels}
