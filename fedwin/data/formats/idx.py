"""Arrays in the IDX format of MNIST, http://yann.lecun.com/exdb/mnist.

Two zero bytes, a type byte, the number of dimensions, the dimensions as big-endian int32, then the values, big-endian.
"""

import numpy as np

from fedwin.errors import UserError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def parse(blob: bytes, where) -> np.ndarray:
    """Returns the array in `blob`, in the machine's byte order.

    Raises:
      UserError: wrong magic number, or fewer or more bytes than the header says.
    """
    if len(blob) < 4 or blob[:2] != b"\0\0" or blob[2] not in TYPES or not 1 <= blob[3] <= 8:
        raise UserError(f"{where}: wrong magic number {blob[:4].hex() or '(empty)'}; it is not an IDX file.")
    dtype, ndim = np.dtype(TYPES[blob[2]]), blob[3]
    header = 4 + 4 * ndim
    shape = tuple(int(n) for n in np.frombuffer(blob[4:header], ">i4")) if len(blob) >= header else ()
    expected = header + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if len(shape) < ndim or min(shape) < 0 or len(blob) != expected:
        raise UserError(f"{where}: {len(blob)} bytes, but the header says {expected}; it is truncated or damaged.")
    return np.frombuffer(blob, dtype, offset=header).reshape(shape).astype(dtype.newbyteorder("="))
