"""Shakespeare by speaking role, FedJAX's form: next-character prediction on rows of 80 characters.

McMahan et al. 2017, https://arxiv.org/abs/1602.05629, as released with TFF and FedJAX (715 roles). Ids: 0 PAD, 1 BOS,
2 EOS, 3..88 the 86 characters, 89 everything else.
"""

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Examples, FullSize
from fedwin.data.formats import checksums, clients, files, sqlite
from fedwin.registry.ranges import PositiveInt

PAD, BOS, EOS, FIRST = 0, 1, 2, 3
ALPHABET = b"dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
OOV = FIRST + len(ALPHABET)
VOCABULARY = OOV + 1
# FedJAX's model takes ids 87, 88 and 89 for BOS, EOS and OOV, but in its data they are two characters and OOV, so its
# accuracy skips carriage returns and counts the ends of snippets. Papers report it, so it is logged too.
ACCURACIES = {
    "accuracy": ((PAD, EOS), (PAD, BOS, EOS, OOV)),
    "accuracy_fedjax": ((PAD, 88), (PAD, 87, 88, 89)),
}
SOURCE = "https://storage.googleapis.com/gresearch/fedjax/shakespeare/shakespeare_{train,test}.sqlite"
FILES = ("shakespeare_train.sqlite", "shakespeare_test.sqlite")

TABLE = np.full(256, OOV, np.int32)
TABLE[np.frombuffer(ALPHABET, np.uint8)] = np.arange(FIRST, OOV)


def rows(texts, length: int) -> Examples:
    """Cuts a client's text into rows of inputs and next characters: x, y int32 [ceil((L - 1) / length), length].

    The snippets, each BOS ... EOS, are joined to a stream s of L ids; x = s[:-1] and y = s[1:] are cut into rows, the
    last one padded with 0.
    """
    parts = [np.concatenate([[BOS], TABLE[np.frombuffer(snippet, np.uint8)], [EOS]]) for snippet in texts]
    stream = np.concatenate(parts).astype(np.int32) if parts else np.zeros(1, np.int32)
    count = -(-(len(stream) - 1) // length)
    padded = np.zeros((2, count * length), np.int32)
    padded[0, : len(stream) - 1] = stream[:-1]
    padded[1, : len(stream) - 1] = stream[1:]
    return {"x": padded[0].reshape(count, length), "y": padded[1].reshape(count, length)}


@DATASETS.register(
    "shakespeare",
    full=FullSize(clients=715),
    downloads=tuple(SOURCE.replace("{train,test}", side) for side in ("train", "test")),
)
def shakespeare(data_dir, *, length: PositiveInt = 80) -> Dataset:
    """Shakespeare roles: x, y int32 [N, 80], one target per position, 0 = padding; 90 ids.

    Reads FedJAX's `shakespeare_{train,test}.sqlite`.
    """

    def cut(features: dict) -> Examples:
        return rows(np.asarray(features["snippets"], object).reshape(-1), length)

    paths = files.locate_all(files.folders(data_dir, "shakespeare*"), *FILES)
    if not paths:
        raise files.missing("shakespeare", data_dir, f"{' and '.join(FILES)} (also compressed)", SOURCE)
    sides = [clients.flatten(sqlite.read(path, convert=cut), path) for path in paths]
    checksums.check_num_clients("shakespeare", paths[0], sides[0][1].num_clients)
    fields = {"task": "sequence", "verified": False, "accuracies": ACCURACIES}
    return Dataset.of_clients("shakespeare", sides, VOCABULARY, **fields)
