"""PACS: one label set in four styles, Li et al. 2017, https://arxiv.org/abs/1710.03077."""

import re
from collections.abc import Mapping
from typing import Annotated

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, FullSize, floor_of_share
from fedwin.data.example_source import Images, Item
from fedwin.data.formats import files, image_files
from fedwin.data.rng import generator
from fedwin.data.sources import folder
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, PositiveInt, Range

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
# Number of images of each domain.
SIZES = (1670, 2048, 2344, 3929)


def num_test_images(num_images: int, fraction: float) -> int:
    """Returns the number of test images of a domain: floor(fraction n), but at least one."""
    return max(int(floor_of_share(fraction, num_images)), 1)


def full_size(fraction: float) -> FullSize:
    """Returns the size of the complete data set for a share of test images."""
    num_test = sum(num_test_images(size, fraction) for size in SIZES)
    return FullSize(sum(SIZES) - num_test, num_test)


@DATASETS.register(
    "pacs",
    full=lambda params: full_size(params["test_fraction"]),
    by_hand="the folders photo, art_painting, cartoon and sketch from https://dali-dl.github.io/project_iccv2017.html",
)
def pacs(
    data_dir,
    *,
    size: PositiveInt = 224,
    resize: PositiveInt = 256,
    test_fraction: Annotated[float, Range(0, 1, True, True)] = 0.1,
    split_seed: NonNegativeInt = 0,
) -> Dataset:
    """PACS: x uint8 [N, 224, 224, 3] decoded on access, y in 0..6, 'domain' in 0..3; 9,991 images.

    Of each domain's n images a random floor(test_fraction n) are the test set (167 + 204 + 234 + 392).

    Args:
      data_dir: folders, or a tar or zip archive, `<domain>/<class>/<file>` at any depth.
      test_fraction: share of test images of each domain.
      split_seed: seed of the split.

    Raises:
      UserError: missing domains, or unknown classes.

    Source: https://arxiv.org/abs/1710.03077.
    """
    for location in files.folders(data_dir, "pacs*"):
        archives = [location] if location.is_file() else sorted(filter(is_archive, location.iterdir()))
        is_folder = location.is_dir() and any(
            (sub / "photo").is_dir() for sub in [location, *location.iterdir()] if sub.is_dir()
        )
        for where in ([location] if is_folder else []) + archives:
            return split(where, size, resize, test_fraction, split_seed)
    raise files.missing(
        "pacs",
        data_dir,
        "folders photo, art_painting, cartoon and sketch",
        "https://dali-dl.github.io/project_iccv2017.html",
    )


def split(where, size: int, resize: int, fraction: float, seed: int) -> Dataset:
    """Splits the images of every domain into training and test images, and builds the data set."""
    items, labels, domains = list_images(image_files.images_below(where), where)
    is_test = np.zeros(len(items), bool)
    for d in range(4):
        rows = np.flatnonzero(domains == d)
        num_test = num_test_images(len(rows), fraction)
        is_test[generator(seed, "pacs split", d).permutation(rows)[:num_test]] = True
    part = lambda mask: {
        "x": Images([items[row] for row in np.flatnonzero(mask)], size, resize),
        "y": labels[mask],
        "domain": domains[mask],
    }
    return Dataset(
        "pacs",
        part(~is_test),
        part(is_test),
        7,
        mean=folder.IMAGENET[0],
        std=folder.IMAGENET[1],
        class_names=CLASSES,
        domain_names=DOMAINS,
        verified=False,
    )


def list_images(images: Mapping[str, Item], where) -> tuple[list[Item], np.ndarray, np.ndarray]:
    """Selects the images `.../<domain>/<class>/<file>`, in order of their names: (images, classes [N], domains [N]).

    Raises:
      UserError: a class folder that PACS does not have, or a domain without images; `where` is the folder or archive.
    """
    items, labels, domains = [], [], []
    for name in sorted(images):
        parts = name.split("/")
        if len(parts) < 3 or parts[-3] not in DOMAINS:
            continue
        if parts[-2] not in CLASSES:
            raise UserError(f"{where}: '{name}' lies in a class folder '{parts[-2]}' that PACS does not have.")
        items.append(images[name])
        labels.append(CLASSES.index(parts[-2]))
        domains.append(DOMAINS.index(parts[-3]))
    absent = [DOMAINS[d] for d in range(4) if d not in domains]
    if absent:
        raise UserError(f"{where}: no images of {', '.join(absent)}; fetch all four domains.")
    return items, np.array(labels, np.int32), np.array(domains, np.int32)


def is_archive(path) -> bool:
    """Returns whether the name of a file is that of an archive of PACS."""
    return bool(re.fullmatch(r".*pacs.*\.(zip|tgz|tar(\.\w+)?)", path.name, re.IGNORECASE)) and path.is_file()
