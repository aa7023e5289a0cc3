"""Shakespeare's plays as clients: rows of characters with a target at every position.

Each play, from `ACT I` on, is a client's text: names of roles, speeches and stage directions. Ids are those of the data
set `shakespeare`.
"""

import re
from typing import Annotated

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Examples, FullSize, floor_of_share
from fedwin.data.formats import files, plays
from fedwin.data.formats.clients import flatten
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
    for location in plays.locations(data_dir, "plays.tar"):
        texts = {}
        for name, text in plays.read(location).items():
            if (start := plays.START.search(text)) and not plays.is_gutenberg(text):
                texts[name] = " ".join(text[start.start() :].replace("\r", "").strip().split("\t"))
        if texts:
            return texts
    raise files.missing("shakespeare_plays", data_dir, "plays in plain text, or plays.tar.xz", SOURCE)


def deal(names: list[str], clients: int, seed: int) -> list[list[str]]:
    """Deals plays in random order to clients, one after the other."""
    order = [names[i] for i in generator(seed, "shakespeare plays").permutation(len(names))]
    return [sorted(order[k::clients]) for k in range(clients)]


@DATASETS.register(
    "shakespeare_plays",
    full=lambda params: FullSize(clients=params["clients"]),
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

    The first part of every play is for training and the rest for testing. With fewer clients than plays, a client holds
    several whole plays, dealt in an order drawn with the seed.

    Args:
      data_dir: folder of the plays, or a parent of it.
      clients: number of clients, at most that of the plays.
      test_share: share of each play that is for testing.

    Raises:
      UserError: fewer plays than clients.
    """
    texts = find(data_dir)
    if clients > len(texts):
        raise UserError(f"shakespeare_plays: clients={clients}, but there are {len(texts)} plays; give 1 to that many.")
    # One byte per character, of which those beyond ASCII have the id of everything else.
    encoded = {name: re.sub("[^\0-\x7f]", "\xff", text).encode("latin-1") for name, text in texts.items()}
    cut = {name: int(floor_of_share(1 - test_share, len(text))) for name, text in encoded.items()}
    train = {name: text[: cut[name]] for name, text in encoded.items()}
    test = {name: text[cut[name] :] for name, text in encoded.items()}
    held = {"+".join(own): own for own in deal(list(encoded), clients, seed)}
    stream = lambda texts: ((name, _rows([texts[play] for play in own], length)) for name, own in held.items())
    sides = [flatten(stream(texts), "shakespeare_plays") for texts in (train, test)]
    fields = {"task": "sequence", "verified": False, "accuracies": {"accuracy": ACCURACIES["accuracy"]}}
    return Dataset.of_clients("shakespeare_plays", sides, VOCABULARY, **fields)


def _rows(texts: list[bytes], length: int) -> Examples:
    """Returns the rows of a client, of which each has a part of one play."""
    parts = [rows([text], length) for text in texts]
    return {key: np.concatenate([part[key] for part in parts]) for key in ("x", "y")}
