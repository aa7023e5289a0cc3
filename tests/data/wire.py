"""Serializes tf.train.Example messages by the wire format of protocol buffers."""

import struct

import numpy as np


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(features: dict, packed: bool = True) -> bytes:
    """A tf.train.Example by the wire format: bytes lists, float lists and int64 lists."""
    entries = b""
    for key, value in features.items():
        value = np.asarray(value).reshape(-1) if not isinstance(value, (bytes, list)) else value
        if isinstance(value, (bytes, list)):
            items = [value] if isinstance(value, bytes) else value
            feature = field(1, b"".join(field(1, item) for item in items))
        elif np.issubdtype(value.dtype, np.floating):
            raw = [struct.pack("<f", v) for v in value]
            listed = field(1, b"".join(raw)) if packed else b"".join(varint(1 << 3 | 5) + v for v in raw)
            feature = field(2, listed)
        else:
            raw = [varint(int(v)) for v in value]
            listed = field(1, b"".join(raw)) if packed else b"".join(varint(1 << 3) + v for v in raw)
            feature = field(3, listed)
        entries += field(1, field(1, key.encode()) + field(2, feature))
    return field(1, entries)
