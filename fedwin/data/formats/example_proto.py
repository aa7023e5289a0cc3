"""`tf.train.Example` messages, decoded without TensorFlow.

Example{1: Features}; Features{1: map entry{1: key, 2: Feature}}; Feature{1: BytesList | 2: FloatList | 3: Int64List},
each list with its values in field 1, numbers packed or not. https://protobuf.dev/programming-guides/encoding
"""

import numpy as np


def varint(blob: bytes, at: int) -> tuple[int, int]:
    """Returns the number that starts at position `at` and the position after it."""
    value = shift = 0
    while True:
        byte = blob[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(blob: bytes):
    """Yields (field number, wire type, value) of a message: bytes for types 1, 2 and 5, a number for type 0."""
    at = 0
    value: bytes | int
    while at < len(blob):
        key, at = varint(blob, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(blob, at)
        elif kind in (1, 2, 5):
            if kind == 2:
                size, at = varint(blob, at)
            else:
                size = 8 if kind == 1 else 4
            value, at = blob[at : at + size], at + size
            if at > len(blob):
                raise ValueError("it ends inside a field")
        else:
            raise ValueError(f"wire type {kind}")
        yield key >> 3, kind, value


def varints(blob: bytes) -> np.ndarray:
    """Returns the packed 64-bit numbers of `blob`, all at once."""
    raw = np.frombuffer(blob, np.uint8)
    if not raw.size:
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(raw < 0x80)
    if not ends.size or ends[-1] != raw.size - 1:
        raise ValueError("it ends inside a number")
    starts = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(raw.size) - np.repeat(starts, ends - starts + 1)
    if place.max() > 9:
        raise ValueError("a number is longer than ten bytes")
    parts = (raw & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.add.reduceat(parts, starts).view(np.int64)


def values(kind: int, blob: bytes):
    """Returns the list of one feature: bytes objects, float32 or int64."""
    if kind == 1:
        return [value for number, _, value in fields(blob) if number == 1]
    found = [np.zeros(0, np.float32 if kind == 2 else np.int64)]
    for number, wire, value in fields(blob):
        if number != 1:
            continue
        if kind == 2:
            found.append(np.frombuffer(value, "<f4"))
        else:
            found.append(varints(value) if wire == 2 else np.array([value], np.uint64).view(np.int64))
    return np.concatenate(found)


def parse(blob: bytes) -> dict[str, "np.ndarray | list[bytes]"]:
    """Returns feature name -> float32 or int64 array, or list of bytes.

    Raises:
      ValueError: not such a message.
    """
    features = {}
    try:
        for number, _, content in fields(blob):
            if number != 1:
                continue
            for inner, _, entry in fields(content):
                parts = {key: value for key, _, value in fields(entry)} if inner == 1 else {}
                for kind, _, listed in fields(parts.get(2, b"")):
                    features[parts[1].decode()] = values(kind, listed)
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a tf.train.Example ({error})") from error
    return features
