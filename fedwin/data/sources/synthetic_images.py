"""Stand-ins `<name>_synthetic` for the image sets: their keys, dtypes, shapes and client structure, drawn from a seed.

They need no files. A model learns something on each of them, but figures on them say nothing about the real sets.
"""

import numpy as np

from fedwin.data.dataset import Dataset, Examples
from fedwin.data.partitions.pachinko import pachinko
from fedwin.data.reader import Images
from fedwin.data.registries import DATASETS
from fedwin.data.rng import generator
from fedwin.data.sources import cifar, cifar_names, digit5, femnist, folder, mnist, pacs
from fedwin.data.sources.synthetic_text import DRAWN, check, owners, ragged
from fedwin.errors import UserError

NOISE = 40.0
# Numbers in the noise images that are shared out at random: drawing fresh ones would take most of the time.
BANK = 1 << 21


def waves(side: int) -> np.ndarray:
    """Returns the first four cosine waves on `side` pixels, [4, side]."""
    return np.stack([np.cos(np.pi * k * (np.arange(side) + 0.5) / side) for k in range(4)]).astype(np.float32)


def smooth(rng, count: int, side: int, channels: int) -> np.ndarray:
    """Returns `count` random smooth patterns, float32 [count, side, side, channels], of mean square 1 or so."""
    weights = rng.standard_normal((count, channels, 4, 4), np.float32) / 2
    return np.einsum("ncab,ai,bj->nijc", weights, waves(side), waves(side))


def pictures(rng, labels: np.ndarray, prototypes: np.ndarray, style: np.ndarray | None = None) -> np.ndarray:
    """Returns uint8 images: the class's pattern and noise, and the scale and shift of brightness of the style."""
    bank = NOISE * rng.standard_normal((BANK // prototypes[0].size, *prototypes.shape[1:]), np.float32)
    drawn = rng.integers(0, len(bank), len(labels))
    result = np.empty((len(labels), *prototypes.shape[1:]), np.uint8)
    for start in range(0, len(labels), 1024):
        part = slice(start, start + 1024)
        images = 128 + 50 * prototypes[labels[part]] + bank[drawn[part]]
        if style is not None:
            images = images * style[part, 0, None, None, None] + style[part, 1, None, None, None]
        result[part] = np.clip(np.rint(images), 0, 255)
    return result


def balanced(rng, n: int, num_classes: int) -> np.ndarray:
    """Returns labels in random order, classes differing by at most one example."""
    return rng.permutation(np.arange(n) % num_classes).astype(np.int32)


def image_set(name, side, channels, num_classes, n, tests, seed, mean, std, class_names=()) -> Dataset:
    """Draws a set of images without clients."""
    check(name, n=n, tests=tests)
    rng = generator(seed, name)
    prototypes = smooth(rng, num_classes, side, channels).astype(np.float32)
    make = lambda count: (lambda y: {"x": pictures(rng, y, prototypes), "y": y})(balanced(rng, count, num_classes))
    return Dataset(name, make(n), make(tests), num_classes, mean=mean, std=std, class_names=class_names)


def register_images(name, side, channels, num_classes, mean, std, class_names) -> None:
    """Registers a stand-in for a set of images without clients."""

    @DATASETS.register(f"{name}_synthetic", how=DRAWN)
    def build(data_dir=None, *, n: int = 5000, tests: int = 1000, seed: int = 0) -> Dataset:
        return image_set(f"{name}_synthetic", side, channels, num_classes, n, tests, seed, mean, std, class_names)


register_images("cifar10", 32, 3, 10, *cifar.CONSTANTS["cifar10"], cifar_names.CIFAR10)
register_images("mnist", 28, 1, 10, (0.1307,), (0.3081,), mnist.DIGITS)
register_images("fmnist", 28, 1, 10, (0.0,), (1.0,), mnist.FASHION_NAMES)
register_images("emnist", 28, 1, 62, (0.0,), (1.0,), mnist.CHARACTERS)
register_images("usps", 16, 1, 10, (0.0,), (1.0,), mnist.DIGITS)


def hierarchy(rng, n: int, prototypes: np.ndarray) -> Examples:
    """Returns images of 100 fine classes with their coarse labels."""
    fine = balanced(rng, n, 100)
    return {"x": pictures(rng, fine, prototypes), "y": fine, "coarse": cifar_names.PARENT[fine]}


def hundred(rng) -> np.ndarray:
    """Returns patterns of 100 classes in which the five of a coarse class resemble each other."""
    return (smooth(rng, 20, 32, 3)[cifar_names.PARENT] + 0.7 * smooth(rng, 100, 32, 3)).astype(np.float32)


@DATASETS.register("cifar100_synthetic", how=DRAWN)
def cifar100(data_dir=None, *, label: str = "fine", n: int = 10_000, tests: int = 2000, seed: int = 0) -> Dataset:
    """CIFAR-100-like images with the tree of 20 x 5 classes."""
    check("cifar100_synthetic", n=n, tests=tests)
    if label not in ("fine", "coarse"):
        raise UserError(f"cifar100_synthetic: label={label}; it is fine or coarse.")
    rng = generator(seed, "cifar100_synthetic")
    prototypes = hundred(rng)
    train, test = hierarchy(rng, n, prototypes), hierarchy(rng, tests, prototypes)
    if label == "coarse":
        train, test = ({"x": side["x"], "y": side["coarse"], "fine": side["y"]} for side in (train, test))
    names = cifar_names.FINE if label == "fine" else cifar_names.COARSE
    mean, std = cifar.CONSTANTS["cifar100"]
    return Dataset("cifar100_synthetic", train, test, len(names), mean=mean, std=std, class_names=names)


@DATASETS.register("cifar100_pam_synthetic", how=DRAWN)
def cifar100_pam(
    data_dir=None, *, clients: int = 500, test_clients: int = 100, per_client: int = 100, seed: int = 0
) -> Dataset:
    """CIFAR-100-like images held by Pachinko clients; test clients are others."""
    check("cifar100_pam_synthetic", clients=clients, test_clients=test_clients, per_client=per_client)
    rng = generator(seed, "cifar100_pam_synthetic")
    prototypes = hundred(rng)
    sides = []
    for prefix, count in (("train", clients), ("test", test_clients)):
        whole = hierarchy(rng, count * per_client, prototypes)
        drawn = pachinko(Dataset("synthetic", whole, whole, 100), count, seed)
        ids = np.array([f"{prefix}_{k:03d}" for k in range(count)])
        examples = {key: value[drawn.order] for key, value in whole.items()}
        sides.append((examples, owners(drawn.sizes, ids)))
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


def register_writers(name, num_classes, clients, same_writers, mean, std, class_names) -> None:
    """Registers a stand-in for characters by writer: ragged clients, each with a brightness of its own."""

    @DATASETS.register(f"{name}_synthetic", how=DRAWN)
    def build(data_dir=None, *, clients: int = clients, n: int = 20 * clients, seed: int = 0) -> Dataset:
        check(f"{name}_synthetic", clients=clients, n=n)
        rng = generator(seed, f"{name}_synthetic")
        prototypes = smooth(rng, num_classes, 28, 1).astype(np.float32)
        sides = []
        tests = clients if same_writers else max(clients * 5 // 9, 1)
        for count, total, first in ((clients, n, 0), (tests, max(n // 8, tests), 0 if same_writers else clients)):
            sizes = ragged(rng, total, count)
            style = np.stack([rng.uniform(0.7, 1.1, count), rng.uniform(-20, 20, count)], 1).astype(np.float32)
            y = rng.integers(0, num_classes, total).astype(np.int32)
            x = pictures(rng, y, prototypes, np.repeat(style, sizes, 0))
            ids = np.array([f"f{first + k:04d}" + ("_00" if same_writers else "") for k in range(count)])
            sides.append(({"x": x, "y": y}, owners(sizes, ids)))
        (train, natural), (test, test_natural) = sides
        domain_names = ()
        if same_writers:
            natural, test_natural, domain_names = (
                femnist.domains(natural),
                femnist.domains(test_natural),
                femnist.DOMAINS,
            )
        return Dataset(
            f"{name}_synthetic",
            train,
            test,
            num_classes,
            mean=mean,
            std=std,
            natural=natural,
            class_names=class_names,
            domain_names=domain_names,
            test_natural=test_natural,
        )


register_writers("femnist", 62, 3400, True, (0.0,), (1.0,), mnist.CHARACTERS)
register_writers("femnist_digits", 10, 3383, True, (0.0,), (1.0,), mnist.DIGITS)
register_writers("mnist_writers", 10, 539, False, (0.1307,), (0.3081,), mnist.DIGITS)


class Drawn(Images):
    """Images that are drawn when they are used: one smooth pattern per class, noise from the seed and the row.

    Args:
      labels: [N] class of each image.
      weights: float32 [classes, 3, 4, 4] of the patterns.
      seed: of the noise.
      size: pixels of a side.
    """

    def __init__(self, labels: np.ndarray, weights: np.ndarray, seed: int, size: int):
        super().__init__(range(len(labels)), size)
        self.labels, self.weights, self.seed = labels, weights, seed
        self.waves = waves(size)

    def image(self, row: int) -> np.ndarray:
        """Draws one image."""
        pattern = np.einsum("cab,ai,bj->ijc", self.weights[self.labels[row]], self.waves, self.waves, optimize=True)
        noise = generator(self.seed, "drawn", row).standard_normal(pattern.shape, np.float32)
        return np.clip(np.rint(128 + 50 * pattern + NOISE * noise), 0, 255).astype(np.uint8)


def register_users(name, num_classes, clients) -> None:
    """Registers a stand-in for photographs by user: ragged clients, few classes each."""

    @DATASETS.register(f"{name}_synthetic", how=DRAWN)
    def build(
        data_dir=None, *, clients: int = clients, n: int = 2 * clients, size: int = 224, seed: int = 0
    ) -> Dataset:
        check(f"{name}_synthetic", clients=clients, n=n, size=size)
        rng = generator(seed, f"{name}_synthetic")
        weights = rng.standard_normal((num_classes, 3, 4, 4), np.float32) / 2
        sizes = ragged(rng, n, clients)
        home = np.repeat(rng.integers(0, num_classes, clients), sizes)
        y = ((home + rng.geometric(0.3, n) - 1) % num_classes).astype(np.int32)
        test_y = rng.integers(0, num_classes, max(n // 8, 1)).astype(np.int32)
        sides = [{"x": Drawn(labels, weights, 2 * seed + i, size), "y": labels} for i, labels in enumerate((y, test_y))]
        ids = np.array([str(k) for k in range(clients)])
        mean, std = folder.IMAGENET
        return Dataset(f"{name}_synthetic", *sides, num_classes, mean=mean, std=std, natural=owners(sizes, ids))


register_users("landmarks", 2028, 1262)
register_users("inaturalist", 1203, 9275)


def register_domains(name, side, num_classes, domains, per_domain, tests, mean, std, class_names) -> None:
    """Registers a stand-in for one label set in several styles: one pattern per class, recoloured per domain."""

    @DATASETS.register(f"{name}_synthetic", how=DRAWN)
    def build(
        data_dir=None, *, per_domain: int = per_domain, tests: int = tests, size: int = side, seed: int = 0
    ) -> Dataset:
        check(f"{name}_synthetic", per_domain=per_domain, tests=tests, size=size)
        rng = generator(seed, f"{name}_synthetic")
        prototypes = smooth(rng, num_classes, size, 1).astype(np.float32)
        colours = rng.uniform(-1.2, 1.2, (len(domains), 3)).astype(np.float32)
        backgrounds = 0.5 * smooth(rng, len(domains), size, 3).astype(np.float32)
        sides = []
        for count in (per_domain, tests):
            parts = []
            for d in range(len(domains)):
                y = balanced(rng, count, num_classes)
                parts.append(
                    (pictures(rng, y, prototypes * colours[d] + backgrounds[d]), y, np.full(count, d, np.int32))
                )
            sides.append(dict(zip(("x", "y", "domain"), map(np.concatenate, zip(*parts)))))
        return Dataset(
            f"{name}_synthetic", *sides, num_classes, mean=mean, std=std, class_names=class_names, domain_names=domains
        )


register_domains("digit5", 28, 10, digit5.DOMAINS, 1000, 200, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), mnist.DIGITS)
register_domains("pacs", 224, 7, pacs.DOMAINS, 100, 20, *folder.IMAGENET, pacs.CLASSES)
