"""Building blocks of the synthetic stand-ins: class patterns with noise, random client sizes, argument checks."""

import numpy as np

from fedwin.data.dataset import Partition, offsets
from fedwin.data.example_source import Images
from fedwin.data.rng import generator
from fedwin.errors import UserError

NOISE = 40.0
# Size of the bank of noise that images draw from: independent noise would take most of the time.
BANK = 1 << 21


def waves(side: int) -> np.ndarray:
    """Returns the first four cosine waves on `side` pixels, [4, side]."""
    return np.stack([np.cos(np.pi * k * (np.arange(side) + 0.5) / side) for k in range(4)]).astype(np.float32)


def smooth_patterns(rng, count: int, side: int, channels: int) -> np.ndarray:
    """Generates random smooth patterns, float32 [count, side, side, channels], with mean square about 1."""
    weights = rng.standard_normal((count, channels, 4, 4), np.float32) / 2
    return np.einsum("ncab,ai,bj->nijc", weights, waves(side), waves(side))


def noisy_images(rng, labels: np.ndarray, prototypes: np.ndarray, style: np.ndarray | None = None) -> np.ndarray:
    """Generates images: the pattern of the class plus noise, with a style per image.

    Args:
      rng: the random generator.
      labels: classes of the images [N].
      prototypes: patterns [C, side, side, channels].
      style: scale and shift of the brightness [N, 2], or None.

    Returns:
      uint8 [N, side, side, channels].
    """
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


def balanced_labels(rng, n: int, num_classes: int) -> np.ndarray:
    """Returns n labels in random order; numbers of examples per class differ by at most one."""
    return rng.permutation(np.arange(n) % num_classes).astype(np.int32)


class GeneratedImages(Images):
    """Images generated on access: one smooth pattern per class plus noise that depends on the seed and the row.

    Args:
      labels: class of each image [N].
      weights: weights of the patterns, float32 [classes, 3, 4, 4].
      seed: seed of the noise.
      size: side of the images in pixels.
    """

    def __init__(self, labels: np.ndarray, weights: np.ndarray, seed: int, size: int):
        super().__init__(range(len(labels)), size)
        self.labels, self.weights, self.seed = labels, weights, seed
        self.waves = waves(size)

    def image(self, row: int) -> np.ndarray:
        """Generates one image."""
        pattern = np.einsum("cab,ai,bj->ijc", self.weights[self.labels[row]], self.waves, self.waves, optimize=True)
        noise = generator(self.seed, "drawn", row).standard_normal(pattern.shape, np.float32)
        return np.clip(np.rint(128 + 50 * pattern + NOISE * noise), 0, 255).astype(np.uint8)


# How to obtain the files of stand-ins.
NO_FILES = "no files needed"


def lognormal_sizes(rng, n: int, clients: int) -> np.ndarray:
    """Returns log-normal client sizes >= 1 that sum to n; raises UserError unless 1 <= clients <= n."""
    if not 1 <= clients <= n:
        raise UserError(f"a synthetic data set of n={n} training examples cannot have {clients} clients; give 1 to n.")
    share = rng.lognormal(0.0, 0.6, clients)
    sizes = 1 + np.floor(share / share.sum() * (n - clients)).astype(np.int64)
    sizes[: n - sizes.sum()] += 1
    return sizes


def consecutive_clients(sizes: np.ndarray, ids: np.ndarray) -> Partition:
    """Returns the Partition of clients that hold consecutive examples, given their sizes and ids [K]."""
    return Partition(np.arange(sizes.sum(), dtype=np.int32), offsets(sizes), ids=ids)


def check_positive(name: str, **numbers) -> None:
    """Raises UserError unless every number is an integer > 0."""
    for key, value in numbers.items():
        if not (isinstance(value, int) and value > 0):
            raise UserError(f"{name}: {key}={value}; give a whole number > 0.")
