"""Texts of roles, and LEAF's windows on them."""

import numpy as np

from fedwin.data.sources.shakespeare_texts import ALPHABET, LENGTH


def text_of(role, n):
    letters = np.random.default_rng(role).integers(0, 79, n)
    return "".join(ALPHABET[i] for i in letters)


def leaf_windows(text, stride):
    starts = range(0, len(text) - LENGTH, stride)
    return [text[s : s + LENGTH] for s in starts], [text[s + LENGTH] for s in starts]
