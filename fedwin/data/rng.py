"""Host-side random streams that depend on nothing but a seed and a name."""

import zlib

import numpy as np

from fedwin.errors import UserError


def generator(seed: int, *tags) -> np.random.Generator:
    """Returns `Generator(PCG64(SeedSequence([seed, tag, ...])))`, a text tag counting as its CRC-32.

    Python's own hash of a text differs from process to process; the CRC does not.
    """
    if seed < 0:
        raise UserError(f"seed {seed} is negative; give a seed >= 0.")
    numbers = [zlib.crc32(tag.encode()) if isinstance(tag, str) else int(tag) for tag in tags]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([int(seed), *numbers])))
