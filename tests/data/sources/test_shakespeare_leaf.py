"""Shakespeare in LEAF's form: windows of 80 characters."""

import functools

import numpy as np
import pytest

from fedwin import data
from fedwin.data.formats import plays
from fedwin.data.sources.shakespeare_texts import ALPHABET, LENGTH, encode
from tests.data.files import expect_runs, leaf_windows, refused, tarred, text_of, write_leaf


def write_sides(folder, train, test):
    for side, held in (("train", train), ("test", test)):
        write_leaf(folder / side, held, suffix="")


def test_the_alphabet_is_leafs():
    assert len(ALPHABET) == 80 == len(set(ALPHABET)) and sorted(ALPHABET) == list(ALPHABET)
    assert encode("\n az}~é").tolist() == [0, 1, 53, 78, 79, 79, 79]


@pytest.mark.parametrize("stride", [1, LENGTH])
def test_runs_of_windows_from_leaf_json(tmp_path, stride):
    texts = {f"PLAY_ROLE{k}": text_of(k, 1000 if k else 300) for k in range(5)}
    sides = {"train": {}, "test": {}}
    for role, text in texts.items():
        x, y = leaf_windows(text, stride)
        n = int(0.8 * len(x))
        left_out = 79 if stride == 1 else 0  # LEAF splits its windows in time
        sides["train"][role], sides["test"][role] = (x[:n], y[:n]), (x[n + left_out :], y[n + left_out :])
    for side, held in sides.items():
        write_leaf(tmp_path / side, held)
    dataset = data.load("shakespeare_leaf:clients=3,train=100,test=20", tmp_path)
    assert dataset.train["x"].shape == (300, 80) and dataset.test["y"].shape == (60,) and dataset.num_classes == 80
    assert dataset.natural.sizes.tolist() == [100] * 3 and "PLAY_ROLE0" not in dataset.natural.ids
    expect_runs(dataset, texts, 100, 20)
    other = data.load("shakespeare_leaf:clients=3,train=100,test=20,seed=1", tmp_path)
    assert not np.array_equal(other.train["x"], dataset.train["x"])
    pooled = data.load("shakespeare_leaf:clients=4,train=50,test=10,iid=true", tmp_path)
    assert pooled.natural.sizes.tolist() == [50] * 4
    assert len(np.unique(pooled.train["x"], axis=0)) == 200  # no window twice
    joined = "|".join(texts.values())
    first = "".join(ALPHABET[i] for i in pooled.train["x"][7]) + ALPHABET[pooled.train["y"][7]]
    assert first in joined
    refused("only 4 of 5 roles", data.load, "shakespeare_leaf:clients=5,train=100,test=20", tmp_path)


def test_runs_of_windows_from_plays(tmp_path):
    say = lambda k: " ".join(f"word{i}" for i in range(40 * k, 40 * k + 40))
    speech = "\n\n".join(f"ROLE{k % 4}\t{say(k)}" for k in range(12))
    play = f"\tTITLE\n\nACT I\n\n{speech}\n"
    tarred(tmp_path / "plays.tar.gz", {"texts/title.txt": play.encode()}, "w:gz")
    dataset = data.load("shakespeare_leaf:clients=2,train=60,test=10", tmp_path)
    expect_runs(dataset, plays.text_by_role({"title": play}), 60, 10)


def test_windows_that_do_not_continue_are_rejected(tmp_path):
    """LEAF's iid sampling gives windows of all roles to new users."""
    refused("shakespeare_leaf: found no LEAF JSON", data.load, "shakespeare_leaf", tmp_path)
    texts = [text_of(k, 700) for k in range(4)]
    windows = [pair for text in texts for pair in zip(*leaf_windows(text, 1))]
    order = np.random.default_rng(0).permutation(len(windows))
    for side in ("train", "test"):
        held = {str(k): tuple(map(list, zip(*[windows[i] for i in part]))) for k, part in enumerate(np.split(order, 4))}
        write_leaf(tmp_path / side, held)
    message = "train/all_data_0_niid_0_keep_0.json.gz, client '0': its windows do not continue"
    for choice in ("clients=1,train=10,test=5", "clients=1,train=10,test=5,iid=true"):
        refused(message, data.load, f"shakespeare_leaf:{choice}", tmp_path)


def test_windows_of_mixed_strides_and_torn_sides_are_refused(tmp_path):
    one, two = text_of(1, 900), text_of(2, 900)
    dense, apart = leaf_windows(one, 1), leaf_windows(two, LENGTH)
    write_sides(tmp_path, {"A": dense, "B": apart}, {"A": dense})
    load = functools.partial(data.load, "shakespeare_leaf", tmp_path)
    refused("json, client 'B': its windows are 80 apart, those of .*client 'A' are not", load)
    torn = [pair[2:] for pair in apart]
    write_sides(tmp_path, {"B": [pair[:5] for pair in apart]}, {"B": [pair[6:] for pair in apart]})
    refused("test, client 'B': it does not continue where its training windows end", load)
    write_sides(tmp_path, {"B": (apart[0][:3], ["ab"] * 3)}, {"B": torn})
    refused("client 'B', window 0: not a text of 80 characters and the character after", load)
    write_sides(tmp_path, {"B": ("ab", "cd")}, {"B": torn})
    refused("client 'B': it has no x and y", data.load, "shakespeare_leaf", tmp_path)


@pytest.mark.parametrize("text, last, unknown", [("a$" * 200, "$", 400), ("ab" * 200, "\ud800", 2)])
def test_unknown_characters_cause_a_warning(tmp_path, text, last, unknown):
    x, y = leaf_windows(text, 1)
    for side in ("train", "test"):
        write_leaf(tmp_path / side, {"PLAY_A": (x, [*y[:-1], last])})
    with pytest.warns(UserWarning, match=f"{unknown} characters outside the alphabet"):
        dataset = data.load("shakespeare_leaf:clients=1,train=10,test=5", tmp_path)
    assert dataset.natural.report["unknown_characters"] == unknown
    assert 79 in dataset.train["x"] or unknown == 2
