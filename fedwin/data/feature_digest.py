"""What a feature holds, in a few bytes: the same whether it is decoded when used, in memory or mapped from a cache."""

import hashlib

import numpy as np

from fedwin.data.reader import ExampleSource

# Of larger features some rows stand for all: a hash must not cost more than opening the data does.
WHOLE_BYTES = 64 << 20
ROWS = 256


def feature_digest(values) -> bytes:
    """Returns a hash of a feature's shape, type and rows: an array, memory map or Images [N, ...].

    Which rows are read is decided by the size alone, so a run that began on image files continues from their
    packed cache.
    """
    size = int(np.prod(values.shape, dtype=np.int64)) * values.dtype.itemsize
    if size > WHOLE_BYTES:
        rows = np.linspace(0, len(values) - 1, min(ROWS, len(values))).astype(int)
    else:
        rows = np.arange(len(values))
    if not isinstance(values, np.ndarray) or len(rows) < len(values):
        with ExampleSource({"values": values}) as source:
            values = source.gather(rows)["values"]
    h = hashlib.blake2b(f"{size} {values.shape[1:]} {values.dtype.str}".encode(), digest_size=16)
    h.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return h.digest()
