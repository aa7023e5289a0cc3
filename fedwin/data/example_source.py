"""Reads examples that need not fit into memory: image files decoded on access, and memory-mapped caches."""

import collections
import concurrent.futures
import contextlib
import hashlib
import io
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from fedwin.data.dataset import Examples
from fedwin.errors import UserError

# `feature_digest` reads images in pieces of at most this many bytes.
PIECE_BYTES = 64 << 20


class Member(NamedTuple):
    """An encoded image in an archive, its bytes or their place: in the file `where`, if there is no content."""

    where: str
    content: bytes | None = None
    offset: int = 0
    size: int = 0


# An encoded image: a path, or a member of an archive.
Item = str | os.PathLike | Member


class ExampleSource(contextlib.AbstractContextManager):
    """Gathers rows of features that need not fit into memory, the next ones on threads while others are in use.

    Args:
      features: name -> array, memory map or Images, all of the same length.

    Example:
      >>> with ExampleSource({"x": np.arange(10) ** 2}) as source:
      ...     source.gather([3, 1])["x"].tolist()
      [9, 1]
    """

    def __init__(self, features: "Mapping[str, np.ndarray | Images]"):
        self.features = dict(features)
        self.length = len(next(iter(self.features.values())))
        # Threads decode in parallel, because Pillow and file reads release the interpreter lock.
        self.threads = min(os.cpu_count() or 1, 16)
        self.pool = concurrent.futures.ThreadPoolExecutor(self.threads)

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Stops the decoding threads."""
        self.pool.shutdown(cancel_futures=True)

    def gather(self, rows, capacity: int = 0) -> Examples:
        """Returns name -> [..., *feature] for an index array of any shape [...].

        The result for 1-D rows is padded with zeros to `capacity` rows.

        Raises:
          UserError: a row is out of range, or an image is missing or can't be decoded.
        """
        return _finished(*self._started(rows, capacity))

    def prefetch(self, batches: Iterable[np.ndarray], depth: int = 2) -> Iterator[Examples]:
        """Yields `gather(rows)` for every index array, decoding up to `depth` of them in advance."""
        waiting: collections.deque[tuple[Examples, list]] = collections.deque()
        for rows in batches:
            waiting.append(self._started(rows))
            if len(waiting) > depth:
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())

    def _started(self, rows, capacity: int = 0) -> tuple[Examples, list[concurrent.futures.Future]]:
        """Starts to read rows; returns the arrays that threads fill, and what they are still doing."""
        rows = np.asarray(rows)
        if rows.size and (rows.min() < 0 or rows.max() >= self.length):
            raise UserError(
                f"row {rows.max() if rows.max() >= self.length else rows.min()} is not in 0..{self.length - 1}."
            )
        flat = rows.reshape(-1)
        shape = (max(capacity, rows.size),) if capacity else rows.shape
        cuts = np.linspace(0, len(flat), min(self.threads, max(len(flat), 1)) + 1).astype(int)
        results: Examples = {}
        parts: list[concurrent.futures.Future] = []
        for key, value in self.features.items():
            # Every part is written to its final location: large data sets must not be in memory twice.
            result = np.zeros((math.prod(shape), *value.shape[1:]), value.dtype)
            if isinstance(value, (Images, np.memmap)):
                parts += [self.pool.submit(gather, value, flat[a:b], result[a:b]) for a, b in itertools.pairwise(cuts)]
            else:
                gather(value, flat, result[: len(flat)])
            results[key] = result.reshape(*shape, *value.shape[1:])
        return results, parts


def _finished(results: Examples, parts: list[concurrent.futures.Future]) -> Examples:
    for part in parts:
        part.result()
    return results


def gather(value, rows: np.ndarray, out: np.ndarray) -> None:
    """Copies rows [n] of an array, memory map or Images to `out` [n, ...]; those of a memory map only once."""
    if isinstance(value, Images):
        value.decode_into(rows, out)
    elif len(rows):
        np.take(np.asarray(value), rows, 0, out=out, mode="clip")  # other modes make another copy


class Images:
    """Images decoded on access; behaves like a read-only uint8 array [N, size, size, channels].

    Args:
      resize: pixels that the short side is scaled to before cropping; `size` by default.

    Raises:
      UserError: sizes are impossible.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, items: Iterable, size: int, resize: int | None = None, channels: int = 3):
        self.items = list(items)
        self.size_px, self.resize_px, self.channels = size, resize or size, channels
        if self.size_px < 1 or self.resize_px < self.size_px:
            raise UserError(f"images of {size} pixels cropped from {resize} pixels; give size >= 1 and resize >= size.")

    def __len__(self) -> int:
        return len(self.items)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self.items), self.size_px, self.size_px, self.channels)

    def __getitem__(self, rows) -> np.ndarray:
        """Decodes one image (integer) or several (slice, mask or array of rows)."""
        if isinstance(rows, (int, np.integer)):
            return self.image(self.items[rows])
        picked = np.arange(len(self.items))[rows]
        result = np.empty((len(picked), *self.shape[1:]), np.uint8)
        self.decode_into(picked, result)
        return result

    def decode_into(self, rows, out: np.ndarray) -> None:
        """Decodes the images in `rows` [n] into an array, uint8 [n, size, size, channels]."""
        for position, row in enumerate(rows):
            out[position] = self.image(self.items[row])

    def image(self, item) -> np.ndarray:
        """Decodes one item."""
        return decode(item, self.size_px, self.resize_px, self.channels)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)


def decode(item: Item, size: int, resize: int, channels: int = 3) -> np.ndarray:
    """Decodes an image, scales its short side and crops its center: uint8 [size, size, channels].

    Raises:
      UserError: the image is missing or can't be decoded.
    """
    from PIL import Image  # on first use, here and below: few runs decode images

    image = open_image(item, channels, resize)
    width, height = image.size
    scale = resize / min(width, height)
    width, height = max(round(width * scale), size), max(round(height * scale), size)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return np.asarray(image.crop((left, top, left + size, top + size)), np.uint8).reshape(size, size, channels)


def decode_whole(item: Item, channels: int | None = None) -> np.ndarray:
    """Decodes an image as uint8 [H, W, channels]; channels None: 1 for gray images, else 3; errors as in `decode`."""
    pixels = np.asarray(open_image(item, channels), np.uint8)
    return pixels.reshape(*pixels.shape[:2], -1)


def open_image(item: Item, channels: int | None, short_side: int | None = None):
    """Decodes an image with Pillow to RGB or gray; channels None: gray if it is.

    A `short_side` that it will be scaled to lets the JPEG decoder skip what would be scaled away.

    Raises:
      UserError: the image is missing, can't be decoded or has more than 8 bits per pixel and channel.
    """
    from PIL import Image

    blob = image_bytes(item)
    try:
        with Image.open(io.BytesIO(blob)) as image:
            if short_side is not None:
                image.draft("RGB", (short_side, short_side))
            gray = image.mode in ("1", "L") if channels is None else channels == 1
            if not (mode := image.mode).startswith(("I", "F")):  # of these, Pillow would clip what 8 bits do not hold
                return image.convert("L" if gray else "RGB")
    except Exception as error:  # damaged files raise many kinds
        reason = " ".join(str(error).split(" <")[0].split())  # without Pillow's address of the stream
        raise UserError(
            f"{describe_image(item)}: not a decodable image ({reason}); fetch it again or take it out of the list."
        ) from error
    raise UserError(f"{describe_image(item)}: its mode {mode} has more than 8 bits per pixel; save it with 8 bits.")


def image_bytes(item: Item) -> bytes:
    """Reads the encoded bytes of an image; raises UserError if it is missing."""
    path, content, offset, size = item if isinstance(item, Member) else (item, None, 0, -1)
    if content is not None:
        return content
    try:
        with open(path, "rb") as stream:
            stream.seek(offset)
            return stream.read(size)
    except OSError as error:
        raise UserError(
            f"{describe_image(item)}: {error.strerror or error}; put the image there or take it out of the list."
        ) from error


def describe_image(item: Item) -> str:
    """Returns the name of an image in error messages."""
    if isinstance(item, Member):
        return item.where + (f", image at byte {item.offset}" if item.content is None else "")
    return str(item)


def feature_digest(values, whole_bytes: int = 64 << 20, num_rows: int = 256) -> bytes:
    """Computes a hash of a feature's shape, type and rows, 16 bytes.

    Features larger than `whole_bytes` are hashed by a sample of `num_rows` rows, by default few enough that it is no
    slower than opening them. The sample depends on the size alone, so image files, arrays and memory maps have the same
    hash: a run that was started on image files can be resumed on their packed cache.
    """
    size = int(np.prod(values.shape, dtype=np.int64)) * values.dtype.itemsize
    if size > whole_bytes:
        rows = np.linspace(0, len(values) - 1, min(num_rows, len(values))).astype(int)
    else:
        rows = np.arange(len(values))
    digest = hashlib.blake2b(f"{size} {values.shape[1:]} {values.dtype.str}".encode(), digest_size=16)
    update = lambda part: digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    if isinstance(values, np.ndarray) and len(rows) == len(values):
        update(values)
        return digest.digest()
    # In pieces, so that decoded images are never in memory all at once.
    pieces = np.array_split(rows, max(-(-len(rows) * size // (max(len(values), 1) * PIECE_BYTES)), 1))
    with ExampleSource({"values": values}) as source:
        for part in source.prefetch(pieces, depth=1):
            update(part["values"])
    return digest.digest()
