"""Synthetic stand-ins `<name>_synthetic` for images with their own clients or in several domains."""

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset
from fedwin.data.rng import generator
from fedwin.data.sources import digit5, femnist, folder, mnist, pacs
from fedwin.data.sources.synthetic_parts import (
    NO_FILES,
    GeneratedImages,
    balanced_labels,
    check_positive,
    consecutive_clients,
    lognormal_sizes,
    noisy_images,
    smooth_patterns,
)


def register_writers(name, num_classes, clients, same_writers, mean, std, class_names) -> None:
    """Registers a stand-in for characters by writer: clients of unequal sizes, each with its own brightness."""

    @DATASETS.register(f"{name}_synthetic", how=NO_FILES)
    def build(data_dir=None, *, clients: int = clients, n: int = 20 * clients, seed: int = 0) -> Dataset:
        check_positive(f"{name}_synthetic", clients=clients, n=n)
        rng = generator(seed, f"{name}_synthetic")
        prototypes = smooth_patterns(rng, num_classes, 28, 1).astype(np.float32)
        sides = []
        tests = clients if same_writers else max(clients * 5 // 9, 1)
        for count, total, first in ((clients, n, 0), (tests, max(n // 8, tests), 0 if same_writers else clients)):
            sizes = lognormal_sizes(rng, total, count)
            style = np.stack([rng.uniform(0.7, 1.1, count), rng.uniform(-20, 20, count)], 1).astype(np.float32)
            y = rng.integers(0, num_classes, total).astype(np.int32)
            x = noisy_images(rng, y, prototypes, np.repeat(style, sizes, 0))
            ids = np.array([f"f{first + k:04d}" + ("_00" if same_writers else "") for k in range(count)])
            sides.append(({"x": x, "y": y}, consecutive_clients(sizes, ids)))
        (train, natural), (test, test_natural) = sides
        domain_names: tuple[str, ...] = ()
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


def register_users(name, num_classes, clients) -> None:
    """Registers a stand-in for photographs by user: clients of unequal sizes with few classes each."""

    @DATASETS.register(f"{name}_synthetic", how=NO_FILES)
    def build(
        data_dir=None, *, clients: int = clients, n: int = 2 * clients, size: int = 224, seed: int = 0
    ) -> Dataset:
        check_positive(f"{name}_synthetic", clients=clients, n=n, size=size)
        rng = generator(seed, f"{name}_synthetic")
        weights = rng.standard_normal((num_classes, 3, 4, 4), np.float32) / 2
        sizes = lognormal_sizes(rng, n, clients)
        home = np.repeat(rng.integers(0, num_classes, clients), sizes)
        y = ((home + rng.geometric(0.3, n) - 1) % num_classes).astype(np.int32)
        test_y = rng.integers(0, num_classes, max(n // 8, 1)).astype(np.int32)
        sides = [
            {"x": GeneratedImages(labels, weights, 2 * seed + i, size), "y": labels}
            for i, labels in enumerate((y, test_y))
        ]
        ids = np.array([str(k) for k in range(clients)])
        mean, std = folder.IMAGENET
        return Dataset(
            f"{name}_synthetic",
            sides[0],
            sides[1],
            num_classes,
            mean=mean,
            std=std,
            natural=consecutive_clients(sizes, ids),
        )


register_users("landmarks", 2028, 1262)
register_users("inaturalist", 1203, 9275)


def register_domains(name, side, num_classes, domains, per_domain, tests, mean, std, class_names) -> None:
    """Registers a stand-in for one set of labels in several domains: one pattern per class, recolored per domain."""

    @DATASETS.register(f"{name}_synthetic", how=NO_FILES)
    def build(
        data_dir=None, *, per_domain: int = per_domain, tests: int = tests, size: int = side, seed: int = 0
    ) -> Dataset:
        check_positive(f"{name}_synthetic", per_domain=per_domain, tests=tests, size=size)
        rng = generator(seed, f"{name}_synthetic")
        prototypes = smooth_patterns(rng, num_classes, size, 1).astype(np.float32)
        colours = rng.uniform(-1.2, 1.2, (len(domains), 3)).astype(np.float32)
        backgrounds = 0.5 * smooth_patterns(rng, len(domains), size, 3).astype(np.float32)
        sides = []
        for count in (per_domain, tests):
            parts = []
            for d in range(len(domains)):
                y = balanced_labels(rng, count, num_classes)
                parts.append(
                    (noisy_images(rng, y, prototypes * colours[d] + backgrounds[d]), y, np.full(count, d, np.int32))
                )
            sides.append(dict(zip(("x", "y", "domain"), map(np.concatenate, zip(*parts)))))
        return Dataset(
            f"{name}_synthetic",
            sides[0],
            sides[1],
            num_classes,
            mean=mean,
            std=std,
            class_names=class_names,
            domain_names=domains,
        )


register_domains("digit5", 28, 10, digit5.DOMAINS, 1000, 200, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), mnist.DIGITS)
register_domains("pacs", 224, 7, pacs.DOMAINS, 100, 20, *folder.IMAGENET, pacs.CLASSES)
