"""Shakespeare in FedJAX's form."""

import fedjax
import numpy as np
import pytest

from fedwin import data
from tests.data.files import write_both

SNIPPETS = {b"PLAY_A": [bytes(range(256)), b"x"], b"PLAY_B": [b"\xc3\xa9" * 100, b""], b"PLAY_C": [b"q" * 78]}


@pytest.mark.filterwarnings("ignore:.*unverified")
def test_shakespeare_rows_are_those_of_fedjax(tmp_path):
    held = {client: {"snippets": np.array(said, object)} for client, said in SNIPPETS.items()}
    write_both(tmp_path, "shakespeare", held)
    dataset = data.load("shakespeare", tmp_path)
    assert dataset.task == "sequence" and dataset.num_classes == 90 == fedjax.datasets.shakespeare.VOCAB_SIZE
    for k, (client, snippets) in enumerate(SNIPPETS.items()):
        expected = fedjax.datasets.shakespeare.preprocess_client(client, {"snippets": snippets}, 80)
        rows = dataset.natural.client(k)
        np.testing.assert_array_equal(dataset.train["x"][rows], expected["x"])
        np.testing.assert_array_equal(dataset.train["y"][rows], expected["y"])
