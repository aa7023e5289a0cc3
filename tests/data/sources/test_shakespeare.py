"""Shakespeare in FedJAX's form, from its files and from plays as clients."""

import fedjax
import numpy as np

from fedwin import data
from fedwin.data.sources.shakespeare import ALPHABET, BOS, EOS, FIRST, OOV
from tests.data.files import refused, taken, tarred, write_both

LENGTH = 10
# Tabs become spaces; '|' and '’' are not in the alphabet.
TEXTS = {
    "alpha": "\tALPHA\r\n\nACT I\n\nONE\tTo be, or not to be.\n\nTWO\tThat’s it.\n",
    "beta": "\tBETA\n\nACT I\n\nONE\tNow | then: the winter of our discontent.\n",
    "gamma": "GAMMA\n\nACT I\n\nTWO\tIf music be the food of love, play on.\n",
}
SNIPPETS = {b"PLAY_A": [bytes(range(256)), b"x"], b"PLAY_B": [b"\xc3\xa9" * 100, b""], b"PLAY_C": [b"q" * 78]}
POEM = "Shall I compare thee to a summer's day?\n"


def write_snippets(folder):
    held = {client: {"snippets": np.array(said, object)} for client, said in SNIPPETS.items()}
    write_both(folder, "shakespeare", held)


def write_plays(folder):
    for name, text in (TEXTS | {"sonnets": POEM}).items():
        (folder / f"{name}.txt").write_bytes(text.encode())


def ids(text):
    places = [ALPHABET.find(character.encode()) for character in text]
    return [FIRST + place if place >= 0 else OOV for place in places]


def expected(name, tenths=9):
    """(training stream, test stream) of a play."""
    text = TEXTS[name]
    text = text[text.index("ACT I") :].replace("\r", "").replace("\t", " ").strip()
    cut = tenths * len(text) // 10
    return [np.array([BOS, *ids(part), EOS]) for part in (text[:cut], text[cut:])]


def test_a_client_is_a_play_from_its_first_act_on(tmp_path):
    write_plays(tmp_path)
    tarred(tmp_path / "plays.tar.xz", taken(tmp_path), "w:xz")
    dataset = data.load(f"shakespeare_plays:length={LENGTH},clients=3,test_share=0.8", tmp_path)
    assert sorted(dataset.natural.ids) == list(TEXTS) and dataset.task == "sequence" and dataset.num_classes == 90
    for examples, clients, side in ((dataset.train, dataset.natural, 0), (dataset.test, dataset.test_natural, 1)):
        for k, name in enumerate(clients.ids):
            stream, rows = expected(name, 2)[side], clients.client(k)
            x, y = (examples[key][rows].ravel() for key in ("x", "y"))
            np.testing.assert_array_equal(x[: len(stream) - 1], stream[:-1])
            np.testing.assert_array_equal(y[: len(stream) - 1], stream[1:])
            assert not y[len(stream) - 1 :].any() and len(rows) == -(-(len(stream) - 1) // LENGTH)


def test_fewer_clients_hold_several_plays(tmp_path):
    write_plays(tmp_path)
    dealt = [data.load(f"shakespeare_plays:length=10,clients=2,seed={seed}", tmp_path) for seed in range(5)]
    two = dealt[0]
    assert sorted("+".join(two.natural.ids).split("+")) == list(TEXTS)
    assert len({tuple(each.natural.ids) for each in dealt}) > 1
    rows = lambda text: -(-(len(text) - 1) // 10)
    for k, names in enumerate(two.natural.ids):
        assert two.natural.sizes[k] == sum(rows(expected(name)[0]) for name in names.split("+"))


def test_too_many_clients_and_folders_without_plays_are_refused(tmp_path):
    write_plays(tmp_path)
    refused("clients=4, but there are 3 plays", data.load, "shakespeare_plays:clients=4", tmp_path)
    for name in TEXTS:
        (tmp_path / f"{name}.txt").unlink()
    refused("shakespeare_plays: found no plays in plain text", data.load, "shakespeare_plays", tmp_path)


def test_shakespeare_rows_are_those_of_fedjax(tmp_path):
    write_snippets(tmp_path)
    dataset = data.load("shakespeare", tmp_path)
    assert dataset.task == "sequence" and dataset.num_classes == 90 == fedjax.datasets.shakespeare.VOCAB_SIZE
    for k, (client, snippets) in enumerate(SNIPPETS.items()):
        expected = fedjax.datasets.shakespeare.preprocess_client(client, {"snippets": snippets}, 80)
        rows = dataset.natural.client(k)
        np.testing.assert_array_equal(dataset.train["x"][rows], expected["x"])
        np.testing.assert_array_equal(dataset.train["y"][rows], expected["y"])
