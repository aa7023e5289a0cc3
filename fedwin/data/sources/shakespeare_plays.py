"""Shakespeare's plays as clients: rows of characters with a target at every position.

Each play, from `ACT I` on, is a client's text: names of roles, speeches and stage directions. Ids are those of the data
set `shakespeare`.
"""

import pathlib
from typing import Annotated

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Examples, FullSize, Partition, offsets
from fedwin.data.formats import files, plays
from fedwin.data.rng import generator
from fedwin.data.sources.shakespeare import ACCURACIES, VOCABULARY, rows
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, PositiveInt, Range

PLAYS = 37
SOURCE = "https://github.com/martin-gorner/tensorflow-rnn-shakespeare (its folder shakespeare/)"


def find(data_dir) -> dict[str, str]:
    """Reads name -> text from `ACT I` on, from `plays.tar.xz`, a folder `plays` or text files below data_dir.

    Tabs become single spaces, and texts without acts are left out.

    Raises:
      UserError: there are none.
    """
    for folder in files.folders(data_dir, "shakespeare*"):
        for location in (files.locate(folder, "plays.tar"), folder / "plays", folder):
            if location is not None and location.exists() and (texts := read(location)):
                return texts
    raise files.missing("shakespeare_plays", data_dir, "plays in plain text, or plays.tar.xz", SOURCE)


def read(location: pathlib.Path) -> dict[str, str]:
    """Returns name -> text from `ACT I` on of the plays in a folder or an archive."""
    entries = files.entries(location, lambda name: name.endswith(".txt"))
    texts = {}
    for name, entry in sorted(entries.items()):
        text = files.content(entry).decode("utf-8", "replace").replace("\r", "")
        if (start := plays.START.search(text)) and not plays.is_gutenberg(text):
            texts[name.removesuffix(".txt")] = " ".join(text[start.start() :].strip().split("\t"))
    return texts


def deal(names: list[str], clients: int, seed: int) -> list[list[str]]:
    """Deals plays in random order to clients, one after the other."""
    order = [names[i] for i in generator(seed, "shakespeare plays").permutation(len(names))]
    return [sorted(order[k::clients]) for k in range(clients)]


@DATASETS.register(
    "shakespeare_plays",
    title="Shakespeare, plays as clients",
    how="by hand: the plays in plain text",
    sizes="37 / 55,752 / 6,210 rows of 80",
    full=lambda params: FullSize(clients=params["clients"]),
    prepared="0.6 s",
    by_hand=f"the plays in plain text, such as {SOURCE}, as text files or in plays.tar.xz",
)
def shakespeare_plays(
    data_dir,
    *,
    length: PositiveInt = 80,
    clients: PositiveInt = PLAYS,
    test_share: Annotated[float, Range(0, 1, True, True)] = 0.1,
    seed: NonNegativeInt = 0,
) -> Dataset:
    """37 plays: x, y int32 [N, 80], one target per position, 0 = padding; 90 ids.

    The first part of every play trains and the rest tests. With fewer clients than plays, a client holds several whole
    plays, dealt in an order drawn with the seed.

    Args:
      data_dir: folder of the plays, or a parent of it.
      clients: number of clients, at most that of the plays.
      test_share: share of each play that tests.

    Raises:
      UserError: fewer plays than clients.
    """
    texts = find(data_dir)
    if clients > len(texts):
        raise UserError(f"shakespeare_plays: clients={clients}, but there are {len(texts)} plays; give 1 to that many.")
    encoded = {name: text.encode("latin-1", "replace") for name, text in texts.items()}
    cut = {name: int((1 - test_share) * len(text)) for name, text in encoded.items()}
    held = deal(list(encoded), clients, seed)
    train = [[rows([encoded[name][: cut[name]]], length) for name in own] for own in held]
    test = [[rows([encoded[name][cut[name] :]], length) for name in own] for own in held]
    sides = _joined(train, held), _joined(test, held)
    fields = {"task": "sequence", "verified": False, "accuracies": {"accuracy": ACCURACIES["accuracy"]}}
    return Dataset.of_clients("shakespeare_plays", sides, VOCABULARY, **fields)


def _joined(parts: list[list[Examples]], held: list[list[str]]) -> tuple[Examples, Partition]:
    """Returns the rows of all clients, and the clients that hold them, named after their plays."""
    examples = {key: np.concatenate([part[key] for own in parts for part in own]) for key in ("x", "y")}
    sizes = [sum(len(part["x"]) for part in own) for own in parts]
    ids = np.array(["+".join(own) for own in held])
    return examples, Partition(np.arange(sum(sizes), dtype=np.int32), offsets(sizes), {}, ids)
