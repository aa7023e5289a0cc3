"""Texts of roles, and LEAF's windows over them."""

import numpy as np

from fedwin.data.sources.shakespeare_texts import ALPHABET, LENGTH, encode


def text_of(role, n):
    letters = np.random.default_rng(role).integers(0, 79, n)
    return "".join(ALPHABET[i] for i in letters)


def leaf_windows(text, stride):
    starts = range(0, len(text) - LENGTH, stride)
    return [text[s : s + LENGTH] for s in starts], [text[s + LENGTH] for s in starts]


def expect_runs(dataset, texts, train, test):
    """Every client's windows are a contiguous run of its role's text; training and test text do not overlap."""
    for k, role in enumerate(dataset.natural.ids):
        text = texts[str(role)]
        ends = []
        for features, size in ((dataset.train, train), (dataset.test, test)):
            rows = slice(k * size, (k + 1) * size)
            run = "".join(ALPHABET[i] for i in features["x"][rows][0]) + "".join(
                ALPHABET[i] for i in features["y"][rows]
            )
            at = text.index(run)
            np.testing.assert_array_equal(features["x"][rows][-1], encode(run[-LENGTH - 1 : -1]))
            ends.append((at, at + len(run)))
        assert ends[0][1] <= ends[1][0] + 1
