"""Synthetic stand-ins `<name>_synthetic` for the text data sets."""

from collections.abc import Mapping

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Partition
from fedwin.data.formats.clients import flatten
from fedwin.data.rng import generator
from fedwin.data.sources import shakespeare, shakespeare_texts
from fedwin.data.sources.stackoverflow import accuracies as word_accuracies
from fedwin.data.sources.synthetic_images import NO_FILES, lognormal_sizes
from fedwin.registry.ranges import NonNegativeInt, PositiveInt


def markov(rng, symbols: int, length: int) -> np.ndarray:
    """Walks `length` random steps; each symbol is followed by one of four others, mostly by the first."""
    follow = generator(0, "markov", symbols).integers(0, symbols, (symbols, 4))
    choice = rng.choice(4, length, p=[0.7, 0.15, 0.1, 0.05])
    walk = np.empty(length, np.int64)
    state = int(rng.integers(symbols))
    for i in range(length):
        state = follow[state, choice[i]]
        walk[i] = state
    return walk


def register_roles(name: str, clients: int, accuracies: Mapping[str, tuple]) -> None:
    """Registers a stand-in of Markov text of clients of unequal sizes, in rows with the 90 ids of FedJAX's form."""

    @DATASETS.register(f"{name}_synthetic", how=NO_FILES)
    def build(
        data_dir=None,
        *,
        clients: PositiveInt = clients,
        rows: PositiveInt = 3000,
        length: PositiveInt = 80,
        seed: NonNegativeInt = 0,
    ) -> Dataset:
        """Markov text of clients of unequal sizes, in rows of characters."""
        rng = generator(seed, "shakespeare_synthetic")
        ids = np.array([f"PLAY_ROLE_{k:03d}" for k in range(clients)])
        sides = []
        for total in (rows, max(rows // 7, clients)):
            parts = []
            for size in lognormal_sizes(rng, total, clients):
                # A snippet of n characters is a stream of n + 2 ids and ceil((n + 1) / length) rows.
                walk = markov(rng, len(shakespeare.ALPHABET), size * length - 1 - min(length - 1, 9))
                text = np.frombuffer(shakespeare.ALPHABET, np.uint8)[walk]
                parts.append(shakespeare.rows([text.tobytes()], length))
            sides.append(flatten(zip(ids, parts, strict=True), name))
        fields = {"task": "sequence", "accuracies": accuracies}
        return Dataset.of_clients(f"{name}_synthetic", sides, shakespeare.VOCABULARY, **fields)


register_roles("shakespeare", 715, shakespeare.ACCURACIES)
register_roles("shakespeare_plays", 37, {"accuracy": shakespeare.ACCURACIES["accuracy"]})


@DATASETS.register("shakespeare_leaf_synthetic", how=NO_FILES)
def shakespeare_windows(
    data_dir=None,
    *,
    clients: PositiveInt = 100,
    train: PositiveInt = 200,
    test: PositiveInt = 40,
    seed: NonNegativeInt = 0,
) -> Dataset:
    """Markov text in windows of 80 with the next character, by roles of equal sizes, like LEAF's Shakespeare.

    Args:
      train: number of training windows of each role.
      test: number of test windows of each role.
    """
    rng = generator(seed, "shakespeare_leaf_synthetic")
    ids = np.array([f"PLAY_ROLE_{k:03d}" for k in range(clients)])
    sides = []
    for size in (train, test):
        parts = [shakespeare_texts.windows(markov(rng, 80, size + 80), np.arange(size)) for _ in ids]
        sides.append(flatten(zip(ids, parts, strict=True), "shakespeare_leaf_synthetic"))
    return Dataset.of_clients("shakespeare_leaf_synthetic", sides, 80)


@DATASETS.register("stackoverflow_synthetic", how=NO_FILES)
def stackoverflow(
    data_dir=None,
    *,
    users: PositiveInt = 1000,
    n: PositiveInt = 20_000,
    vocabulary_size: PositiveInt = 10_000,
    length: PositiveInt = 20,
    seed: NonNegativeInt = 0,
) -> Dataset:
    """Sentences of Zipf-distributed words by users of unequal sizes, with 10,004 ids, like FedJAX's Stack Overflow."""
    rng = generator(seed, "stackoverflow_synthetic")
    shares = 1 / np.arange(1, vocabulary_size + 2) ** 1.1
    cumulated = np.cumsum(shares) / shares.sum()

    def sentences(total):
        words = 3 + np.searchsorted(cumulated[:-1], rng.random((total, length)))  # the last rank is the unknown word
        sizes = rng.integers(1, length + 4, total)[:, None]  # longer ones are cut and have no EOS
        place = np.arange(length)
        y = np.where(place < sizes, words, np.where(place == sizes, 2, 0)).astype(np.int32)
        x = np.concatenate([np.ones((total, 1)), np.where(place < sizes, words, 0)[:, :-1]], 1).astype(np.int32)
        return {"x": x, "y": y}

    ids = np.array([f"{k:08d}" for k in range(users)])
    sides = [
        (sentences(total), Partition.consecutive(lognormal_sizes(rng, total, users), ids=ids))
        for total in (n, max(n // 8, users))
    ]
    fields = {"task": "sequence", "accuracies": word_accuracies(vocabulary_size + 3)}
    return Dataset.of_clients("stackoverflow_synthetic", sides, vocabulary_size + 4, **fields)
