"""Examples that are decoded on access: image sets larger than the memory, and memory-mapped caches.

`Images` takes the place of an array of images: it has shape, dtype, length, and indexing decodes. `ExampleSource`
gathers rows of all features and prepares the next ones on threads while the present ones are in use.
"""

import collections
import concurrent.futures
import io
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from fedwin.data.dataset import Examples
from fedwin.errors import UserError


class Span(NamedTuple):
    """A piece of a file, such as a member of an uncompressed tar archive.

    Attributes:
      path: the file.
      offset: its first byte.
      size: bytes.
    """

    path: str
    offset: int
    size: int


def pillow():
    """Returns PIL.Image; raises UserError where it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UserError("image files need the package Pillow; install it with `pip install pillow`.") from error
    return Image


def stored(item) -> bytes:
    """Returns the bytes of an image given as bytes, as a Span or as a path."""
    if isinstance(item, bytes):
        return item
    try:
        if isinstance(item, Span):
            with open(item.path, "rb") as stream:
                stream.seek(item.offset)
                return stream.read(item.size)
        with open(item, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise UserError(
            f"{named(item)}: {error.strerror or error}; put the image there or take it out of the list."
        ) from error


def named(item) -> str:
    """Returns what to call an image in an error line."""
    if isinstance(item, Span):
        return f"{item.path}, image at byte {item.offset}"
    return f"an image of {len(item)} bytes" if isinstance(item, bytes) else str(item)


def decode(item, size: int, resize: int, channels: int = 3) -> np.ndarray:
    """Decodes an image, scales its short side and cuts its centre.

    Args:
      item: bytes, a Span or a path.
      size: side of what is cut, in pixels.
      resize: pixels that the short side is scaled to.
      channels: 3 or 1.

    Returns:
      uint8 [size, size, channels].

    Raises:
      UserError: missing or undecodable.
    """
    image_module = pillow()
    blob = stored(item)
    try:
        with image_module.open(io.BytesIO(blob)) as image:
            image.draft("RGB", (resize, resize))  # lets the JPEG decoder skip what would be scaled away
            image = image.convert("RGB" if channels == 3 else "L")
    except Exception as error:  # damaged files raise many kinds
        raise UserError(
            f"{named(item)}: not a decodable image ({error}); fetch it again or take it out of the list."
        ) from error
    width, height = image.size
    scale = resize / min(width, height)
    width, height = max(round(width * scale), size), max(round(height * scale), size)
    if (width, height) != image.size:
        image = image.resize((width, height), image_module.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return np.asarray(image.crop((left, top, left + size, top + size)), np.uint8).reshape(size, size, channels)


class Images:
    """Images decoded on access: behaves like a read-only uint8 array [N, size, size, channels].

    Args:
      items: a path, a Span or the stored bytes of each image.
      size: pixels of a side after cutting.
      resize: pixels of the short side before cutting; `size` by default.
      channels: 3 or 1.
    """

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(self, items, size: int, resize: int | None = None, channels: int = 3):
        self.items = list(items)
        self.size_px, self.resize_px, self.channels = size, resize or size, channels
        if self.size_px < 1 or self.resize_px < self.size_px:
            raise UserError(f"images of {size} pixels cut from {resize} pixels; give size >= 1 and resize >= size.")

    def __len__(self) -> int:
        return len(self.items)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self.items), self.size_px, self.size_px, self.channels)

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __getitem__(self, rows) -> np.ndarray:
        """Decodes one image (whole number) or several (slice, mask or array of rows)."""
        if isinstance(rows, (int, np.integer)):
            return self.image(self.items[rows])
        picked = np.arange(len(self.items))[rows]
        result = np.empty((len(picked), *self.shape[1:]), np.uint8)
        self.decode_into(picked, result)
        return result

    def decode_into(self, rows, out: np.ndarray) -> None:
        """Decodes the images of `rows` into out [n, size, size, channels]."""
        for position, row in enumerate(rows):
            out[position] = self.image(self.items[row])

    def image(self, item) -> np.ndarray:
        """Decodes one item."""
        return decode(item, self.size_px, self.resize_px, self.channels)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)


class ExampleSource:
    """Gathers rows of features that need not fit the memory.

    Args:
      features: name -> array, memory map or Images, all of one length.
      threads: decoding threads; Pillow and file reads release the interpreter lock. The number of cores by default.
    """

    def __init__(self, features: dict, threads: int | None = None):
        lengths = {len(value) for value in features.values()}
        if len(lengths) != 1:
            raise UserError(f"features of an example source differ in length: {sorted(lengths)}.")
        self.features = dict(features)
        self.length = lengths.pop()
        self.threads = threads or min(os.cpu_count() or 1, 16)
        self.pool = concurrent.futures.ThreadPoolExecutor(self.threads)

    def __len__(self) -> int:
        return self.length

    def __enter__(self) -> "ExampleSource":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Stops the threads."""
        self.pool.shutdown(cancel_futures=True)

    def pending(self, rows: np.ndarray, capacity: int = 0) -> list:
        """Starts decoding the rows and returns what `finish` waits for.

        Args:
          rows: an index array of any shape.
          capacity: rows to make room for; the result of 1-D `rows` is padded with zeros to that many.
        """
        rows = np.asarray(rows)
        if rows.size and (rows.min() < 0 or rows.max() >= self.length):
            raise UserError(
                f"row {rows.max() if rows.max() >= self.length else rows.min()} is not in 0..{self.length - 1}."
            )
        flat = rows.reshape(-1)
        shape = (max(capacity, rows.size),) if capacity else rows.shape
        cuts = np.linspace(0, len(flat), min(self.threads, max(len(flat), 1)) + 1).astype(int)
        jobs = []
        for key, value in self.features.items():
            # Each piece goes straight to its place: large sets must not be in memory twice.
            result = np.zeros((int(np.prod(shape, dtype=np.int64)), *value.shape[1:]), value.dtype)
            pieces = [(value, flat[a:b], result[a:b]) for a, b in zip(cuts[:-1], cuts[1:])]
            if isinstance(value, (Images, np.memmap)):
                parts = [self.pool.submit(gather, *piece) for piece in pieces]
            else:
                parts = []
                for piece in pieces:
                    gather(*piece)
            jobs.append((key, result.reshape(*shape, *value.shape[1:]), parts))
        return jobs

    def finish(self, jobs: list) -> Examples:
        """Waits for the rows and returns them as arrays."""
        for _, _, parts in jobs:
            for part in parts:
                part.result()
        return {key: result for key, result, _ in jobs}

    def gather(self, rows) -> Examples:
        """Returns the features of the rows, an index array of any shape [...]: name -> [..., *feature].

        Raises:
          UserError: a row out of range, a missing or undecodable image.
        """
        return self.finish(self.pending(np.asarray(rows)))

    def prefetch(self, batches: Iterable[np.ndarray], depth: int = 2) -> Iterator[Examples]:
        """Yields `gather(rows)` for every index array in order, decoding up to `depth` of them ahead."""
        waiting: collections.deque[list] = collections.deque()
        for rows in batches:
            waiting.append(self.pending(rows))
            if len(waiting) > depth:
                yield self.finish(waiting.popleft())
        while waiting:
            yield self.finish(waiting.popleft())


def gather(value, rows: np.ndarray, out: np.ndarray) -> None:
    """Writes rows of a feature, read from a map in one copy.

    Args:
      value: array, memory map or Images.
      rows: int [n].
      out: what they are written into [n, ...].
    """
    if isinstance(value, Images):
        value.decode_into(rows, out)
    elif len(rows):
        np.take(np.asarray(value), rows, 0, out=out, mode="clip")  # any other mode would copy once more
