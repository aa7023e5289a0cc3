"""Stack Overflow by user: next-word prediction, as released with TensorFlow Federated and FedJAX.

Lower-case sentences are split at spaces. Ids: 0 PAD, 1 BOS, 2 EOS, rank + 3 for the most frequent words, then one id
for all others. TFF numbers words differently, so ids of the two must not be mixed.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Examples, FullSize, offsets
from fedwin.data.formats import checksums, clients, files, sqlite
from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, PositiveInt

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
FEDJAX = "https://storage.googleapis.com/gresearch/fedjax/stackoverflow/"
WORDS = "https://storage.googleapis.com/tff-datasets-public/stackoverflow.word_count.tar.bz2"
WORDS_SUM = "1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c"
FILES = ("stackoverflow_train.sqlite", "stackoverflow_test.sqlite")


def accuracies(oov: int) -> dict:
    """Returns Dataset.accuracies: counted over known words, and only words are predicted; `oov` is the id of others."""
    return {"accuracy": ((PAD, EOS, oov), (PAD, BOS, EOS, oov))}


def vocabulary(folder, size: int) -> dict[bytes, int]:
    """Returns word -> id of the `size` most frequent words in `stackoverflow.word_count`, plain or in its archive.

    Raises:
      UserError: no such file, or too few words.
    """
    name = "stackoverflow.word_count"
    found = files.search([folder], [name], f"{name}.tar.bz2")
    if found is None:
        raise files.missing("stackoverflow", folder, name, "gs://gresearch/fedjax/stackoverflow")
    path, entry = found[name]
    if isinstance(entry, bytes):
        checksums.verify_files("stackoverflow", [path.parent])
    words = [line.split()[0] for line in files.content(entry).splitlines() if line.split()]
    if len(words) < size:
        raise UserError(f"{path}: only {len(words)} words for vocabulary_size={size}; use a smaller one.")
    ids = {word: FIRST + rank for rank, word in enumerate(words[:size])}
    if len(ids) < size:
        raise UserError(f"{path}: a word occurs twice among the first {size}.")
    return ids


def tokenize(sentences, words: dict[bytes, int], length: int) -> dict[str, np.ndarray]:
    """Tokenizes sentences to int32 [N, length]: x = BOS w1 w2 ..., y = w1 w2 ... EOS, cut or padded with 0."""
    oov = FIRST + len(words)
    x, y = np.zeros((2, len(sentences), length), np.int32)
    for row, sentence in enumerate(sentences):
        sentence = sentence if isinstance(sentence, bytes) else str(sentence).encode()
        ids = [words.get(word, oov) for word in sentence.split(b" ")][:length]
        x[row, 0] = BOS
        x[row, 1 : len(ids) + 1] = ids[: length - 1]
        y[row, : len(ids)] = ids
        if len(ids) < length:
            y[row, len(ids)] = EOS
    return {"x": x, "y": y}


def choose_test_examples(sizes: dict[bytes, int], count: int, seed: int) -> dict[bytes, np.ndarray]:
    """Draws `count` examples of all clients, given their sizes: client -> rows, in order of the ids."""
    ids = sorted(sizes)
    begins = offsets([sizes[client] for client in ids])
    total = begins[-1]
    drawn = np.sort(generator(seed, "stackoverflow test").choice(total, min(count, total), replace=False))
    owner = np.searchsorted(begins[1:], drawn, side="right")
    cuts = np.flatnonzero(np.diff(owner)) + 1
    return {ids[owner[part[0]]]: drawn[part] - begins[owner[part[0]]] for part in np.split(np.arange(len(drawn)), cuts)}


@DATASETS.register(
    "stackoverflow",
    full=lambda params: FullSize(None, params["tests"], params["users"]),
    downloads=(*(FEDJAX + name for name in FILES), WORDS),
    checksums={"stackoverflow.word_count.tar.bz2": ("sha256", WORDS_SUM)},
)
def stackoverflow(
    data_dir,
    *,
    users: PositiveInt = 40_000,
    tests: PositiveInt = 10_000,
    vocabulary_size: PositiveInt = 10_000,
    length: PositiveInt = 20,
    seed: NonNegativeInt = 0,
) -> Dataset:
    """A subset of Stack Overflow users: x, y int32 [N, 20], one target per position, 0 = padding; 10,004 ids.

    Reads FedJAX's `stackoverflow_{train,test}.sqlite` and the word counts. Only the records of chosen users are
    decoded.

    Args:
      users: number of training users, of 342,477.

    Raises:
      UserError: too few users or words.
    """
    paths = files.locate_all(files.folders(data_dir, "stackoverflow*"), *FILES)
    if not paths:
        wanted = f"{' and '.join(FILES)} (also compressed)"
        raise files.missing("stackoverflow", data_dir, wanted, f"{FEDJAX}stackoverflow_{{train,test}}.sqlite")
    words = vocabulary(paths[0].parent, vocabulary_size)
    sizes = [sqlite.sizes(path) for path in paths]
    if empty := [path for path, own in zip(paths, sizes) if not own]:
        raise UserError(f"{empty[0]}: it contains no clients.")
    rows = choose_test_examples(sizes[1], tests, seed)

    def stream(side: int, ids: Iterable[bytes]) -> Iterator[tuple[bytes, Examples]]:
        for client, features in sqlite.read(paths[side], ids):
            where = f"{paths[side]}, client '{clients.text(client)}'"
            if "tokens" not in features:
                raise UserError(f"{where}: no 'tokens', only {', '.join(features)}.")
            sentences = np.asarray(features["tokens"], object).reshape(-1)
            if len(sentences) != sizes[side][client]:
                raise UserError(
                    f"{where}: {len(sentences)} sentences, but {sizes[side][client]} according to the index; fetch it "
                    f"again."
                )
            yield client, tokenize(sentences[rows[client]] if side else sentences, words, length)

    ids = sorted(sizes[0])
    if users > len(ids):
        raise UserError(f"stackoverflow: users={users}, but the file has only {len(ids)}.")
    drawn = generator(seed, "stackoverflow users").permutation(len(ids))[:users]
    chosen = ([ids[i] for i in drawn], rows)
    sides = [clients.flatten(stream(side, ids), paths[side]) for side, ids in enumerate(chosen)]
    oov = FIRST + len(words)
    return Dataset.of_clients(
        "stackoverflow", sides, oov + 1, task="sequence", verified=False, accuracies=accuracies(oov)
    )
