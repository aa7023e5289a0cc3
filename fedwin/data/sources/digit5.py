"""Digit Five: digits in five styles, from FedBN's archive or from the five original data sets.

Archive: Li et al. 2021, https://arxiv.org/abs/2102.07623, `digit_dataset.zip`: per domain
`partitions/train_part0..9.pkl` and `test.pkl`, each a pickled pair (images, labels). Every domain contributes as many
training images as USPS has, 7,438.
"""

from typing import Annotated

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, FullSize
from fedwin.data.rng import generator
from fedwin.data.sources import mnist
from fedwin.data.sources.digit5_files import FOLDERS, archived_domain, archives, original_domain
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, PositiveInt, Range

DOMAINS = tuple(FOLDERS)
# Test images of each domain in the archive, https://github.com/med-air/FedBN/blob/master/utils/data_preprocess.py;
# MNIST-M's own files have 68,002 images instead of the 70,000 that the archive was made from.
TEST_SIZES = {"mnist": 14_000, "svhn": 19_858, "usps": 1_860, "synthdigits": 97_791, "mnist_m": 14_000}
PER_DOMAIN = 7438


def full_size(domains: str, parts: int, per_domain: int, **_) -> FullSize:
    """Returns the size of the complete data set of some domains; unknown for other sizes of the training sets."""
    chosen = str(domains).split("+")
    if parts != 10 or per_domain != PER_DOMAIN or not set(chosen) <= TEST_SIZES.keys():
        return FullSize()
    return FullSize(PER_DOMAIN * len(chosen), sum(TEST_SIZES[domain] for domain in chosen))


def stratified_split(labels: np.ndarray, limit: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """Splits examples, stratified by their labels [N]: ceil(N / 5) for testing, `limit` of the others for training.

    Returns:
      (training rows, test rows).
    """
    order = rng.permutation(len(labels))
    share = 0.2 * np.bincount(labels, minlength=10)
    num_test = np.floor(share).astype(np.int64)
    # Largest remainders first, so that the sum is exact.
    num_test[np.argsort(num_test - share, kind="stable")[: -(-len(labels) // 5) - num_test.sum()]] += 1
    test = np.sort(np.concatenate([order[labels[order] == c][: num_test[c]] for c in range(10)]))
    return rng.permutation(np.setdiff1d(order, test))[:limit], test


@DATASETS.register(
    "digit5",
    full=lambda params: full_size(**params),
    by_hand="digit_dataset.zip linked from https://github.com/med-air/FedBN",
)
def digit5(
    data_dir,
    *,
    domains: str = "+".join(DOMAINS),
    parts: Annotated[int, Range(1, 10)] = 10,
    per_domain: PositiveInt = PER_DOMAIN,
    split_seed: NonNegativeInt = 0,
) -> Dataset:
    """Digit Five: x uint8 [N, 28, 28, 3], y in 0..9, 'domain' in the order of `domains`.

    Domains in FedBN's `digit_dataset.zip` (packed or not) are read as they are. Other domains are read from their
    original files: all labeled images are pooled, a stratified fifth is used for testing and `per_domain` of the
    others for training.

    Args:
      domains: names joined by '+', of mnist, svhn, usps, synthdigits and mnist_m.
      parts: number of training parts of the archive to use.
      per_domain: number of training images of a domain read from original files.
      split_seed: seed of that split.

    Raises:
      UserError: unknown domains.
    """
    chosen = str(domains).split("+")
    for name in chosen:
        if name not in DOMAINS or chosen.count(name) > 1:
            raise UserError(f"digit5: domains={domains}; join different ones of {', '.join(DOMAINS)} by '+'.")
    packed = archives(data_dir, chosen)
    sides: tuple[list, list] = ([], [])
    for number, domain in enumerate(chosen):
        splits = archived_domain(packed, domain, parts)
        if splits is None:
            x, y = original_domain(data_dir, domain)
            train, test = stratified_split(y, per_domain, generator(split_seed, "digit5", domain))
            splits = (x[train], y[train]), (x[test], y[test])
        for side, (x, y) in zip(sides, splits):
            side.append((x, y, np.full(len(y), number, np.int32)))
    join = lambda side: dict(zip(("x", "y", "domain"), map(np.concatenate, zip(*side))))
    return Dataset(
        "digit5",
        join(sides[0]),
        join(sides[1]),
        10,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        class_names=mnist.DIGITS,
        domain_names=tuple(chosen),
        verified=False,
    )
