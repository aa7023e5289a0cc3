"""Synthetic stand-ins `<name>_synthetic` for image data sets, generated from a seed.

They have the features, types, shapes and clients of the original. Models learn something on each of them, but results
on them say nothing about the real data sets.
"""

from typing import Literal, NamedTuple

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Examples, Partition
from fedwin.data.example_source import Images
from fedwin.data.partitions.pachinko import pachinko
from fedwin.data.rng import generator
from fedwin.data.sources import cifar, cifar_names, digit5, femnist, folder, mnist, pacs
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, PositiveInt

NOISE = 40.0
# Size of the bank of noise that images draw from: independent noise would take most of the time.
BANK = 1 << 21
# How to obtain the files of stand-ins.
NO_FILES = "no files needed"


class Shape(NamedTuple):
    """Images of a stand-in, in the form of its original's; mean and deviation as in Dataset."""

    side: int
    channels: int
    classes: int
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    names: tuple[str, ...] = ()


SHAPES = {
    "cifar10": Shape(32, 3, 10, *cifar.CONSTANTS["cifar10"], cifar_names.CIFAR10),
    "mnist": Shape(28, 1, 10, *mnist.MOMENTS, mnist.DIGITS),
    "fmnist": Shape(28, 1, 10, *mnist.UNIT, mnist.FASHION_NAMES),
    "emnist": Shape(28, 1, 62, *mnist.UNIT, mnist.CHARACTERS),
    "usps": Shape(16, 1, 10, *mnist.UNIT, mnist.DIGITS),
    "cifar100": Shape(32, 3, 100, *cifar.CONSTANTS["cifar100"], cifar_names.FINE),
    "cifar100_pam": Shape(32, 3, 100, *cifar.CONSTANTS["cifar100"], cifar_names.FINE),
    "femnist": Shape(28, 1, 62, *mnist.UNIT, mnist.CHARACTERS),
    "femnist_digits": Shape(28, 1, 10, *mnist.UNIT, mnist.DIGITS),
    "mnist_writers": Shape(28, 1, 10, *mnist.MOMENTS, mnist.DIGITS),
    "landmarks": Shape(224, 3, 2028, *folder.IMAGENET),
    "inaturalist": Shape(224, 3, 1203, *folder.IMAGENET),
    "digit5": Shape(28, 3, 10, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), mnist.DIGITS),
    "pacs": Shape(224, 3, 7, *folder.IMAGENET, pacs.CLASSES),
}


def waves(side: int) -> np.ndarray:
    """Returns the first four cosine waves on `side` pixels, [4, side]."""
    return np.stack([np.cos(np.pi * k * (np.arange(side) + 0.5) / side) for k in range(4)]).astype(np.float32)


def smooth_patterns(rng, count: int, side: int, channels: int) -> np.ndarray:
    """Generates random smooth patterns, float32 [count, side, side, channels], with mean square about 1."""
    weights = rng.standard_normal((count, channels, 4, 4), np.float32) / 2
    return np.einsum("ncab,ai,bj->nijc", weights, waves(side), waves(side))


def noisy_images(rng, labels: np.ndarray, prototypes: np.ndarray, style: np.ndarray | None = None) -> np.ndarray:
    """Generates images uint8 [N, side, side, channels]: the pattern of the class plus noise.

    The style is scale and shift of the brightness of each image [N, 2], or None.
    """
    bank = NOISE * rng.standard_normal((max(BANK // prototypes[0].size, 1), *prototypes.shape[1:]), np.float32)
    drawn = rng.integers(0, len(bank), len(labels))
    result = np.empty((len(labels), *prototypes.shape[1:]), np.uint8)
    for start in range(0, len(labels), 1024):
        part = slice(start, start + 1024)
        images = 128 + 50 * prototypes[labels[part]] + bank[drawn[part]]
        if style is not None:
            images = images * style[part, 0, None, None, None] + style[part, 1, None, None, None]
        result[part] = np.clip(np.rint(images), 0, 255)
    return result


class GeneratedImages(Images):
    """Images generated on access: one smooth pattern per class plus noise that depends on the seed and the row."""

    def __init__(self, labels: np.ndarray, weights: np.ndarray, seed: int, size: int):
        super().__init__(range(len(labels)), size)
        self.labels, self.weights, self.seed = labels, weights, seed
        self.waves = waves(size)

    def image(self, row: int) -> np.ndarray:
        """Generates one image."""
        pattern = np.einsum("cab,ai,bj->ijc", self.weights[self.labels[row]], self.waves, self.waves, optimize=True)
        noise = generator(self.seed, "drawn", row).standard_normal(pattern.shape, np.float32)
        return np.clip(np.rint(128 + 50 * pattern + NOISE * noise), 0, 255).astype(np.uint8)


def balanced_labels(rng, n: int, num_classes: int) -> np.ndarray:
    """Returns n labels in random order; numbers of examples per class differ by at most one."""
    return rng.permutation(np.arange(n) % num_classes).astype(np.int32)


def lognormal_sizes(rng, n: int, clients: int) -> np.ndarray:
    """Returns log-normal client sizes >= 1 that sum to n; raises UserError unless 1 <= clients <= n."""
    if not 1 <= clients <= n:
        raise UserError(f"a synthetic data set of n={n} training examples cannot have {clients} clients; give 1 to n.")
    share = rng.lognormal(0.0, 0.6, clients)
    sizes = 1 + np.floor(share / share.sum() * (n - clients)).astype(np.int64)
    sizes[: n - sizes.sum()] += 1
    return sizes


def make_dataset(name: str, train: Examples, test: Examples, **fields) -> Dataset:
    """Builds the stand-in of the data set `name` from its examples and further fields of the Dataset."""
    shape = SHAPES[name]
    described = {"mean": shape.mean, "std": shape.std, "class_names": shape.names}
    return Dataset(f"{name}_synthetic", train, test, **{"num_classes": shape.classes} | described | fields)


def register_images(name: str) -> None:
    """Registers a stand-in for a set of images without clients."""

    @DATASETS.register(f"{name}_synthetic", how=NO_FILES)
    def build(data_dir=None, *, n: PositiveInt = 5000, tests: PositiveInt = 1000, seed: NonNegativeInt = 0) -> Dataset:
        """One smooth pattern per class, with noise."""
        shape, rng = SHAPES[name], generator(seed, f"{name}_synthetic")
        prototypes = smooth_patterns(rng, shape.classes, shape.side, shape.channels).astype(np.float32)
        sides = []
        for count in (n, tests):
            y = balanced_labels(rng, count, shape.classes)
            sides.append({"x": noisy_images(rng, y, prototypes), "y": y})
        return make_dataset(name, *sides)


def register_writers(name: str, clients: int, same_writers: bool) -> None:
    """Registers a stand-in for characters by writer: clients of unequal sizes, each with its own brightness."""

    @DATASETS.register(f"{name}_synthetic", how=NO_FILES)
    def build(
        data_dir=None, *, clients: PositiveInt = clients, n: PositiveInt = 20 * clients, seed: NonNegativeInt = 0
    ) -> Dataset:
        """One smooth pattern per class, with noise, and a brightness of each writer."""
        shape, rng = SHAPES[name], generator(seed, f"{name}_synthetic")
        prototypes = smooth_patterns(rng, shape.classes, shape.side, shape.channels).astype(np.float32)
        sides = []
        tests = clients if same_writers else max(clients * 5 // 9, 1)
        for count, total, first in ((clients, n, 0), (tests, max(n // 8, tests), 0 if same_writers else clients)):
            sizes = lognormal_sizes(rng, total, count)
            style = np.stack([rng.uniform(0.7, 1.1, count), rng.uniform(-20, 20, count)], 1).astype(np.float32)
            y = rng.integers(0, shape.classes, total).astype(np.int32)
            x = noisy_images(rng, y, prototypes, np.repeat(style, sizes, 0))
            ids = np.array([f"f{first + k:04d}" + ("_00" if same_writers else "") for k in range(count)])
            part = Partition.consecutive(sizes, ids=ids)
            sides.append(({"x": x, "y": y}, femnist.domains(part) if same_writers else part))
        (train, natural), (test, test_natural) = sides
        domain_names = femnist.DOMAINS if same_writers else ()
        return make_dataset(name, train, test, natural=natural, test_natural=test_natural, domain_names=domain_names)


def register_users(name: str, clients: int) -> None:
    """Registers a stand-in for photographs by user: clients of unequal sizes with few classes each."""

    @DATASETS.register(f"{name}_synthetic", how=NO_FILES)
    def build(
        data_dir=None,
        *,
        clients: PositiveInt = clients,
        n: PositiveInt = 2 * clients,
        size: PositiveInt = SHAPES[name].side,
        seed: NonNegativeInt = 0,
    ) -> Dataset:
        """One smooth pattern per class, with noise, generated on access; each user has few classes."""
        classes, rng = SHAPES[name].classes, generator(seed, f"{name}_synthetic")
        weights = rng.standard_normal((classes, 3, 4, 4), np.float32) / 2
        sizes = lognormal_sizes(rng, n, clients)
        home = np.repeat(rng.integers(0, classes, clients), sizes)
        y = ((home + rng.geometric(0.3, n) - 1) % classes).astype(np.int32)
        test_y = rng.integers(0, classes, max(n // 8, 1)).astype(np.int32)
        train, test = (
            {"x": GeneratedImages(labels, weights, 2 * seed + i, size), "y": labels}
            for i, labels in enumerate((y, test_y))
        )
        ids = np.array([str(k) for k in range(clients)])
        return make_dataset(name, train, test, natural=Partition.consecutive(sizes, ids=ids))


def register_domains(name: str, domains: tuple[str, ...], per_domain: int, tests: int) -> None:
    """Registers a stand-in for one set of labels in several domains: one pattern per class, recolored per domain."""

    @DATASETS.register(f"{name}_synthetic", how=NO_FILES)
    def build(
        data_dir=None,
        *,
        per_domain: PositiveInt = per_domain,
        tests: PositiveInt = tests,
        size: PositiveInt = SHAPES[name].side,
        seed: NonNegativeInt = 0,
    ) -> Dataset:
        """One smooth pattern per class, with noise, recolored in each domain."""
        classes, rng = SHAPES[name].classes, generator(seed, f"{name}_synthetic")
        prototypes = smooth_patterns(rng, classes, size, 1).astype(np.float32)
        colors = rng.uniform(-1.2, 1.2, (len(domains), 3)).astype(np.float32)
        backgrounds = 0.5 * smooth_patterns(rng, len(domains), size, 3).astype(np.float32)
        sides = []
        for count in (per_domain, tests):
            parts = []
            for d in range(len(domains)):
                y = balanced_labels(rng, count, classes)
                x = noisy_images(rng, y, prototypes * colors[d] + backgrounds[d])
                parts.append((x, y, np.full(count, d, np.int32)))
            sides.append(dict(zip(("x", "y", "domain"), map(np.concatenate, zip(*parts)))))
        return make_dataset(name, *sides, domain_names=domains)


for _name in ("cifar10", "mnist", "fmnist", "emnist", "usps"):
    register_images(_name)
register_writers("femnist", 3400, True)
register_writers("femnist_digits", 3383, True)
register_writers("mnist_writers", 539, False)
register_users("landmarks", 1262)
register_users("inaturalist", 9275)
register_domains("digit5", digit5.DOMAINS, 1000, 200)
register_domains("pacs", pacs.DOMAINS, 100, 20)


def cifar100_examples(rng, n: int, prototypes: np.ndarray) -> Examples:
    """Generates n images of 100 fine classes, with their coarse labels."""
    fine = balanced_labels(rng, n, 100)
    return {"x": noisy_images(rng, fine, prototypes), "y": fine, "coarse": cifar_names.PARENT[fine]}


def cifar100_patterns(rng) -> np.ndarray:
    """Generates patterns of 100 classes; those of the five classes with one coarse label are similar."""
    coarse, fine = smooth_patterns(rng, 20, 32, 3), smooth_patterns(rng, 100, 32, 3)
    return (coarse[cifar_names.PARENT] + 0.7 * fine).astype(np.float32)


@DATASETS.register("cifar100_synthetic", how=NO_FILES)
def cifar100(
    data_dir=None,
    *,
    label: Literal["fine", "coarse"] = "fine",
    n: PositiveInt = 10_000,
    tests: PositiveInt = 2000,
    seed: NonNegativeInt = 0,
) -> Dataset:
    """Images like those of CIFAR-100, with its tree of 20 x 5 classes."""
    rng = generator(seed, "cifar100_synthetic")
    prototypes = cifar100_patterns(rng)
    train, test = cifar100_examples(rng, n, prototypes), cifar100_examples(rng, tests, prototypes)
    if label == "fine":
        return make_dataset("cifar100", train, test)
    train, test = ({"x": side["x"], "y": side["coarse"], "fine": side["y"]} for side in (train, test))
    return make_dataset("cifar100", train, test, num_classes=20, class_names=cifar_names.COARSE)


@DATASETS.register("cifar100_pam_synthetic", how=NO_FILES)
def cifar100_pam(
    data_dir=None,
    *,
    clients: PositiveInt = 500,
    test_clients: PositiveInt = 100,
    per_client: PositiveInt = 100,
    seed: NonNegativeInt = 0,
) -> Dataset:
    """Images like those of CIFAR-100, held by Pachinko clients; test clients are different ones.

    Args:
      test_clients: number of test clients.
    """
    rng = generator(seed, "cifar100_pam_synthetic")
    prototypes = cifar100_patterns(rng)
    sides = []
    for prefix, count in (("train", clients), ("test", test_clients)):
        whole = cifar100_examples(rng, count * per_client, prototypes)
        drawn = pachinko(Dataset("synthetic", whole, whole, 100), count, seed)
        ids = np.array([f"{prefix}_{k:03d}" for k in range(count)])
        examples = {key: value[drawn.order] for key, value in whole.items()}
        sides.append((examples, Partition.consecutive(drawn.sizes, ids=ids)))
    (train, natural), (test, test_natural) = sides
    return make_dataset("cifar100_pam", train, test, natural=natural, test_natural=test_natural)
