"""Decoding tf.train.Example without TensorFlow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwin.data.formats import example_proto
from tests.data.wire import example


@given(
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30),
    floats=st.lists(st.floats(width=32, allow_nan=False), max_size=30),
    texts=st.lists(st.binary(max_size=200), max_size=4),
    packed=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_every_kind_of_list_round_trips(numbers, floats, texts, packed):
    blob = example({"n": np.array(numbers, np.int64), "f": np.array(floats, np.float32), "t": texts}, packed)
    parsed = example_proto.parse(blob)
    assert parsed["n"].tolist() == numbers and parsed["n"].dtype == np.int64
    assert parsed["f"].tolist() == floats and parsed["f"].dtype == np.float32
    assert parsed["t"] == texts


def test_a_message_written_out_by_hand():
    # label = int64 [7], s = bytes ['ab'], x = float [0.5, 1.0], each list packed.
    blob = bytes.fromhex(
        "0a300a0e0a056c6162656c12051a030a01070a0b0a017312060a040a0261620a110a0178120c120a0a080000003f0000803f"
    )
    parsed = example_proto.parse(blob)
    assert parsed["label"].tolist() == [7] and parsed["s"] == [b"ab"] and parsed["x"].tolist() == [0.5, 1.0]


@pytest.mark.parametrize("cut", range(3, 40, 5))
def test_truncated_messages_are_refused_or_shorter(cut):
    whole = example({"image": np.arange(12), "label": np.array([3])})
    with pytest.raises(ValueError):
        example_proto.parse(whole[:-cut])


def test_what_is_not_a_message_is_refused():
    for blob in (b"\x0f\xff\xff", b"\xff" * 12, b"\x0a\x05abc"):
        with pytest.raises(ValueError):
            example_proto.parse(blob)
