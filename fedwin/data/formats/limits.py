"""Bounds on memory: how far files may expand when they are decompressed or decoded.

A few megabytes of compressed zeros expand to many gigabytes. What a format announces in its header bounds the size
exactly; other files may expand to RATIO times their size.
"""

from fedwin.errors import UserError

# LEAF's windows of texts, the most redundant files, expand to less than 100 times their size.
RATIO = 200
# Files that expand to no more than this always pass.
ALWAYS_BYTES = 256 << 20
CHUNK = 1 << 20
# A header is read in so many bytes.
HEAD = 4096


def most_bytes(stored: int) -> int:
    """Returns the largest size that a file or record of `stored` bytes may expand to."""
    return max(ALWAYS_BYTES, RATIO * stored)


def check(size: int, stored: int, where) -> None:
    """Checks a size that is announced before anything is decompressed.

    Args:
      size: the announced size in bytes.
      stored: size of the file.
      where: the file, for error messages.

    Raises:
      UserError: it is larger than `most_bytes`.
    """
    if size > most_bytes(stored):
        raise too_large(where, most_bytes(stored))


def too_large(where, limit: int) -> UserError:
    """Builds the error for a file that expands to more than `limit` bytes."""
    return UserError(
        f"{where}: it expands to more than {limit:,} bytes, which no data set does; fetch it again, or store it "
        f"uncompressed."
    )


def read(stream, stored: int, where, announced=None) -> bytes:
    """Reads a stream that decompresses, up to a bound.

    Args:
      stream: the stream.
      stored: size of the compressed file.
      where: the file, for error messages.
      announced: function from the first bytes to the size that they announce, or None.

    Returns:
      The bytes. Where a size is announced, one byte more is read at most, so that the difference can be reported.

    Raises:
      UserError: the stream is longer than `most_bytes`.
    """
    content = bytearray(stream.read(HEAD))
    limit = most_bytes(stored)
    size = announced(bytes(content)) if announced else None
    stop = limit + 1 if size is None else min(size, limit) + 1
    while len(content) < stop:
        if not (piece := stream.read(min(CHUNK, stop - len(content)))):
            break
        content += piece
    if len(content) > limit:
        raise too_large(where, limit)
    return bytes(content)
