"""Shakespeare in FedJAX's form."""

import fedjax
import numpy as np
import pytest

from fedwin import data
from fedwin.data.sources import shakespeare
from fedwin.errors import UserError
from tests.data.federation_files import SNIPPETS
from tests.data.files import objects, write_fedjax_sqlite, write_tff_sqlite

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")


@pytest.mark.parametrize("form", ["fedjax", "tff", "hdf5"])
def test_shakespeare_rows_are_those_of_fedjax(tmp_path, form):
    if form == "fedjax":
        for side in ("train", "test"):
            content = {client: {"snippets": objects(listed)} for client, listed in SNIPPETS.items()}
            write_fedjax_sqlite(tmp_path / f"shakespeare_{side}.sqlite", content)
    elif form == "tff":
        held = {client.decode(): [{"snippets": snippet} for snippet in listed] for client, listed in SNIPPETS.items()}
        write_tff_sqlite(tmp_path / "shakespeare.sqlite", {"train": held, "test": held})
    else:
        h5py = pytest.importorskip("h5py")
        for side in ("train", "test"):
            with h5py.File(tmp_path / f"shakespeare_{side}.h5", "w") as file:
                for client, listed in SNIPPETS.items():
                    file.create_dataset(
                        f"examples/{client.decode()}/snippets", data=listed, dtype=h5py.special_dtype(vlen=bytes)
                    )
    dataset = data.load("shakespeare", tmp_path)
    assert dataset.task == "sequence" and dataset.num_classes == 90 == fedjax.datasets.shakespeare.VOCAB_SIZE
    for k, (client, snippets) in enumerate(SNIPPETS.items()):
        expected = fedjax.datasets.shakespeare.preprocess_client(client, {"snippets": snippets}, 80)
        rows = dataset.natural.client(k)
        np.testing.assert_array_equal(dataset.train["x"][rows], expected["x"])
        np.testing.assert_array_equal(dataset.train["y"][rows], expected["y"])


def test_shakespeare_ids_and_rows():
    assert shakespeare.TABLE[ord("d")] == 3 and shakespeare.TABLE[ord("\r")] == 88 and shakespeare.TABLE[0xE9] == 89
    cut = shakespeare.rows([b"ab", b"c"], 3)  # BOS a b EOS BOS c EOS: 7 ids, 2 rows
    assert cut["x"].shape == (2, 3) and cut["y"][1, 2] == shakespeare.EOS and cut["x"][0, 0] == shakespeare.BOS
    assert shakespeare.rows([b"abcd"], 4)["y"].tolist()[1] == [2, 0, 0, 0]


def test_shakespeare_errors(tmp_path):
    with pytest.raises(UserError, match="length=0"):
        data.load("shakespeare:length=0", tmp_path)
    write_fedjax_sqlite(tmp_path / "shakespeare_train.sqlite", {b"A": {"text": objects([b"x"])}})
    write_fedjax_sqlite(tmp_path / "shakespeare_test.sqlite", {b"A": {"text": objects([b"x"])}})
    with pytest.raises(UserError, match="client 'A': no 'snippets', only text"):
        data.load("shakespeare", tmp_path)
