"""Images drawn from a seed: one smooth pattern per class, and noise."""

import numpy as np

from fedwin.data.dataset import Partition, offsets
from fedwin.data.example_source import Images
from fedwin.data.rng import generator
from fedwin.errors import UserError

NOISE = 40.0
# Numbers in the noise images that are shared out at random: drawing fresh ones would take most of the time.
BANK = 1 << 21


def waves(side: int) -> np.ndarray:
    """Returns the first four cosine waves on `side` pixels, [4, side]."""
    return np.stack([np.cos(np.pi * k * (np.arange(side) + 0.5) / side) for k in range(4)]).astype(np.float32)


def smooth_patterns(rng, count: int, side: int, channels: int) -> np.ndarray:
    """Returns `count` random smooth patterns, float32 [count, side, side, channels], of mean square 1 or so."""
    weights = rng.standard_normal((count, channels, 4, 4), np.float32) / 2
    return np.einsum("ncab,ai,bj->nijc", weights, waves(side), waves(side))


def noisy_images(rng, labels: np.ndarray, prototypes: np.ndarray, style: np.ndarray | None = None) -> np.ndarray:
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


def balanced_labels(rng, n: int, num_classes: int) -> np.ndarray:
    """Returns labels in random order, classes differing by at most one example."""
    return rng.permutation(np.arange(n) % num_classes).astype(np.int32)


class GeneratedImages(Images):
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


# How the files of stand-ins can be had.
NO_FILES = "no files needed"


def lognormal_sizes(rng, n: int, clients: int) -> np.ndarray:
    """Returns log-normal client sizes >= 1 that sum to n."""
    if not 1 <= clients <= n:
        raise UserError(f"a synthetic data set of n={n} training examples cannot have {clients} clients; give 1 to n.")
    share = rng.lognormal(0.0, 0.6, clients)
    sizes = 1 + np.floor(share / share.sum() * (n - clients)).astype(np.int64)
    sizes[: n - sizes.sum()] += 1
    return sizes


def consecutive_clients(sizes: np.ndarray, ids: np.ndarray) -> Partition:
    """Returns clients that hold consecutive examples."""
    return Partition(np.arange(sizes.sum(), dtype=np.int32), offsets(sizes), ids=ids)


def check_positive(name: str, **numbers) -> None:
    """Raises UserError unless every number is a whole one > 0."""
    for key, value in numbers.items():
        if not (isinstance(value, int) and value > 0):
            raise UserError(f"{name}: {key}={value}; give a whole number > 0.")
