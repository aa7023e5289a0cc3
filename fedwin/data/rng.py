"""NumPy random generators that depend on a seed and a name only."""

import zlib

import numpy as np

from fedwin.errors import UserError


def generator(seed: int, *tags) -> np.random.Generator:
    """Returns `Generator(PCG64(SeedSequence([seed, tag, ...])))`, where a text tag stands for its CRC-32.

    Unlike Python's hash of a text, the CRC is the same in every process. A negative seed raises UserError.
    """
    if seed < 0:
        raise UserError(f"seed {seed} is negative; give a seed >= 0.")
    numbers = [zlib.crc32(tag.encode()) if isinstance(tag, str) else int(tag) for tag in tags]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([int(seed), *numbers])))
