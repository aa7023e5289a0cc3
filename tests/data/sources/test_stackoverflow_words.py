"""Stack Overflow: vocabulary, with word ids by rank."""

import numpy as np
import pytest

from fedwin import data
from fedwin.errors import UserError
from tests.data.federation_files import write_words
from tests.data.files import objects, write_fedjax_sqlite, write_tff_sqlite

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")


@pytest.mark.parametrize("form", ["fedjax", "tff"])
def test_stackoverflow_numbers_words_by_rank(tmp_path, form):
    sentences = {f"{k:08d}": [b"the code", b"to the unknown a a a", b"a"][: 1 + k % 3] for k in range(12)}
    tests = {f"9{k:07d}": [b"code"] * (k + 1) for k in range(5)}
    for side, held in (("train", sentences), ("test", tests)):
        if form == "fedjax":
            content = {client.encode(): {"tokens": objects(listed)} for client, listed in held.items()}
            write_fedjax_sqlite(tmp_path / f"stackoverflow_{side}.sqlite", content)
    if form == "tff":
        as_rows = lambda held: {
            client: [{"tokens": s, "score": np.array([1])} for s in listed] for client, listed in held.items()
        }
        write_tff_sqlite(tmp_path / "stackoverflow.sqlite", {"train": as_rows(sentences), "test": as_rows(tests)})
    write_words(tmp_path, packed=form == "tff")
    options = "users=12,tests=7,vocabulary_size=4,length=5"
    dataset = data.load(f"stackoverflow:{options}", tmp_path)
    assert dataset.num_classes == 8 and dataset.natural.num_clients == 12 and len(dataset.test["y"]) == 7
    names = [c.decode() if isinstance(c, bytes) else str(c) for c in dataset.natural.ids]
    k = next(i for i, name in enumerate(names) if len(sentences[name]) == 3)
    rows = dataset.natural.client(k)
    # BOS 1, EOS 2, the 3, to 4, a 5, code 6, others 7.
    assert dataset.train["x"][rows].tolist() == [[1, 3, 6, 0, 0], [1, 4, 3, 7, 5], [1, 5, 0, 0, 0]]
    assert dataset.train["y"][rows].tolist() == [[3, 6, 2, 0, 0], [4, 3, 7, 5, 5], [5, 2, 0, 0, 0]]
    fewer = data.load("stackoverflow:users=5,tests=7,vocabulary_size=4,length=5", tmp_path)
    again = data.load("stackoverflow:users=5,tests=7,vocabulary_size=4,length=5", tmp_path)
    assert fewer.natural.num_clients == 5 and fewer.natural.ids.tolist() == again.natural.ids.tolist()
    np.testing.assert_array_equal(fewer.test["x"], dataset.test["x"])
    for bad, message in (("users=13,tests=1,vocabulary_size=4", "users=13"), ("users=2,vocabulary_size=6", "5 words")):
        with pytest.raises(UserError, match=message):
            data.load(f"stackoverflow:{bad}", tmp_path)
