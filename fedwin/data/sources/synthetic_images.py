"""Synthetic stand-ins `<name>_synthetic` for image data sets, generated from a seed.

They have the features, types, shapes and clients of the original. Models learn something on each of them, but results
on them say nothing about the real data sets.
"""

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Examples
from fedwin.data.partitions.pachinko import pachinko
from fedwin.data.rng import generator
from fedwin.data.sources import cifar, cifar_names, mnist
from fedwin.data.sources.synthetic_parts import (
    NO_FILES,
    balanced_labels,
    check_positive,
    consecutive_clients,
    noisy_images,
    smooth_patterns,
)
from fedwin.errors import UserError


def image_set(name, side, channels, num_classes, n, tests, seed, mean, std, class_names=()) -> Dataset:
    """Generates a set of images without clients."""
    check_positive(name, n=n, tests=tests)
    rng = generator(seed, name)
    prototypes = smooth_patterns(rng, num_classes, side, channels).astype(np.float32)
    make = lambda count: (lambda y: {"x": noisy_images(rng, y, prototypes), "y": y})(
        balanced_labels(rng, count, num_classes)
    )
    return Dataset(name, make(n), make(tests), num_classes, mean=mean, std=std, class_names=class_names)


def register_images(name, side, channels, num_classes, mean, std, class_names) -> None:
    """Registers a stand-in for a set of images without clients."""

    @DATASETS.register(f"{name}_synthetic", how=NO_FILES)
    def build(data_dir=None, *, n: int = 5000, tests: int = 1000, seed: int = 0) -> Dataset:
        return image_set(f"{name}_synthetic", side, channels, num_classes, n, tests, seed, mean, std, class_names)


register_images("cifar10", 32, 3, 10, *cifar.CONSTANTS["cifar10"], cifar_names.CIFAR10)
register_images("mnist", 28, 1, 10, (0.1307,), (0.3081,), mnist.DIGITS)
register_images("fmnist", 28, 1, 10, (0.0,), (1.0,), mnist.FASHION_NAMES)
register_images("emnist", 28, 1, 62, (0.0,), (1.0,), mnist.CHARACTERS)
register_images("usps", 16, 1, 10, (0.0,), (1.0,), mnist.DIGITS)


def cifar100_examples(rng, n: int, prototypes: np.ndarray) -> Examples:
    """Generates n images of 100 fine classes, with their coarse labels."""
    fine = balanced_labels(rng, n, 100)
    return {"x": noisy_images(rng, fine, prototypes), "y": fine, "coarse": cifar_names.PARENT[fine]}


def cifar100_patterns(rng) -> np.ndarray:
    """Generates patterns of 100 classes; those of the five classes with one coarse label are similar."""
    return (smooth_patterns(rng, 20, 32, 3)[cifar_names.PARENT] + 0.7 * smooth_patterns(rng, 100, 32, 3)).astype(
        np.float32
    )


@DATASETS.register("cifar100_synthetic", how=NO_FILES)
def cifar100(data_dir=None, *, label: str = "fine", n: int = 10_000, tests: int = 2000, seed: int = 0) -> Dataset:
    """Images like those of CIFAR-100, with its tree of 20 x 5 classes.

    Args:
      data_dir: not used.
      label: 'fine' or 'coarse'.
      n: number of training images.
      tests: number of test images.
      seed: the seed.

    Returns:
      The Dataset.
    """
    check_positive("cifar100_synthetic", n=n, tests=tests)
    if label not in ("fine", "coarse"):
        raise UserError(f"cifar100_synthetic: label={label}; choose fine or coarse.")
    rng = generator(seed, "cifar100_synthetic")
    prototypes = cifar100_patterns(rng)
    train, test = cifar100_examples(rng, n, prototypes), cifar100_examples(rng, tests, prototypes)
    if label == "coarse":
        train, test = ({"x": side["x"], "y": side["coarse"], "fine": side["y"]} for side in (train, test))
    names = cifar_names.FINE if label == "fine" else cifar_names.COARSE
    mean, std = cifar.CONSTANTS["cifar100"]
    return Dataset("cifar100_synthetic", train, test, len(names), mean=mean, std=std, class_names=names)


@DATASETS.register("cifar100_pam_synthetic", how=NO_FILES)
def cifar100_pam(
    data_dir=None, *, clients: int = 500, test_clients: int = 100, per_client: int = 100, seed: int = 0
) -> Dataset:
    """Images like those of CIFAR-100, held by Pachinko clients; test clients are others.

    Args:
      data_dir: not used.
      clients: number of training clients.
      test_clients: number of test clients.
      per_client: number of images of each client.
      seed: the seed.

    Returns:
      The Dataset.
    """
    check_positive("cifar100_pam_synthetic", clients=clients, test_clients=test_clients, per_client=per_client)
    rng = generator(seed, "cifar100_pam_synthetic")
    prototypes = cifar100_patterns(rng)
    sides = []
    for prefix, count in (("train", clients), ("test", test_clients)):
        whole = cifar100_examples(rng, count * per_client, prototypes)
        drawn = pachinko(Dataset("synthetic", whole, whole, 100), count, seed)
        ids = np.array([f"{prefix}_{k:03d}" for k in range(count)])
        examples = {key: value[drawn.order] for key, value in whole.items()}
        sides.append((examples, consecutive_clients(drawn.sizes, ids)))
    (train, natural), (test, test_natural) = sides
    mean, std = cifar.CONSTANTS["cifar100"]
    return Dataset(
        "cifar100_pam_synthetic",
        train,
        test,
        100,
        mean=mean,
        std=std,
        natural=natural,
        class_names=cifar_names.FINE,
        test_natural=test_natural,
    )
