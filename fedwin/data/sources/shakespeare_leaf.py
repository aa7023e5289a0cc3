"""Shakespeare by speaking role, LEAF's form: windows of 80 characters predict the next one.

100 roles of 2,000 training and 400 test windows. LEAF: Caldas et al. 2018, https://arxiv.org/abs/1812.01097. The
restriction to 100 x 2,000 windows is from FedDyn, Acar et al. 2021, https://arxiv.org/abs/2111.04263, and generalized
heavy-ball momentum, Zaccone et al. 2023, https://arxiv.org/abs/2311.18578.
"""

import warnings

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Examples, FullSize, Partition, offsets
from fedwin.data.rng import generator
from fedwin.data.sources.shakespeare_texts import ALPHABET, LENGTH, UNKNOWN, encode, find, windows
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, PositiveInt

# Role -> (ids of its training text, ids of its test text).
Ids = dict[str, tuple[np.ndarray, ...]]


@DATASETS.register(
    "shakespeare_leaf",
    full=lambda params: FullSize(
        params["clients"] * params["train"], params["clients"] * params["test"], params["clients"]
    ),
    by_hand="LEAF's Shakespeare JSON, made by https://github.com/TalwalkarLab/leaf, or its source, pg100.txt of "
    "Project Gutenberg, or plays in plain text",
    checksums={"pg100.txt": ("md5", "036d0f9cf7296f41165c2e6da1e52a0e")},
)
def shakespeare_leaf(
    data_dir,
    *,
    clients: PositiveInt = 100,
    train: PositiveInt = 2000,
    test: PositiveInt = 400,
    iid: bool = False,
    seed: NonNegativeInt = 0,
) -> Dataset:
    """100 roles x 2,000 windows: x int32 [N, 80], y int32 [N] the next character, 80 ids.

    Roles with more than `train` training windows and more than `test` test windows are shuffled with the seed, and the
    first `clients` taken. Each contributes a random contiguous run of windows, drawn with the seed (seed + position).

    Args:
      data_dir: folder of LEAF's JSON files or of the plays, or a parent of it.
      train: number of training windows of each role.
      test: number of test windows of each role.
      iid: whether to draw windows from all roles and split them into equal parts instead.

    Raises:
      UserError: no files, or too few roles that are long enough.
    """
    texts = find(data_dir)
    unknown = sum(character not in ALPHABET for pair in texts.values() for part in pair for character in part)
    ids = {role: tuple(encode(part) for part in pair) for role, pair in texts.items()}
    count = lambda side: {role: max(len(pair[side]) - LENGTH, 0) for role, pair in ids.items()}
    train_count, test_count = count(0), count(1)
    if iid:
        sides = [
            draw_pooled_windows(ids, side, counts, clients * size, seed)
            for side, (counts, size) in enumerate(((train_count, train), (test_count, test)))
        ]
        names = np.array([f"iid_{k}" for k in range(clients)])
    else:
        eligible = sorted(role for role in ids if train_count[role] > train and test_count[role] > test)
        if len(eligible) < clients:
            raise UserError(
                f"shakespeare_leaf: only {len(eligible)} of {len(ids)} roles have more than {train} training and "
                f"{test} test windows, fewer than clients={clients}; use fewer clients or shorter runs."
            )
        names = np.array(
            [eligible[i] for i in generator(seed, "shakespeare roles").permutation(len(eligible))[:clients]]
        )
        sides = [draw_runs(ids, names, side, size, seed) for side, size in ((0, train), (1, test))]
    if unknown:
        warnings.warn(f"shakespeare_leaf: {unknown} characters outside the alphabet became id {UNKNOWN}.", stacklevel=4)
    report = {"unknown_characters": unknown}
    equal = lambda size: Partition.consecutive(np.full(clients, size), report=report, ids=names)
    held = zip(sides, (equal(train), equal(test)))
    return Dataset.of_clients("shakespeare_leaf", held, len(ALPHABET), verified=False)


def draw_pooled_windows(ids: Ids, side: int, counts: dict[str, int], total: int, seed: int) -> Examples:
    """Draws windows without replacement from all roles, in random order.

    Args:
      side: 0 for training, 1 for test.

    Raises:
      UserError: there are fewer windows.
    """
    roles = sorted(ids)
    begins = offsets([counts[role] for role in roles])
    if begins[-1] < total:
        raise UserError(f"shakespeare_leaf: {total} windows are needed, but all roles have only {begins[-1]}.")
    drawn = generator(seed, "shakespeare iid", side).choice(begins[-1], total, replace=False)
    x, y = np.zeros((total, LENGTH), np.int32), np.zeros(total, np.int32)
    owner = np.searchsorted(begins[1:], drawn, side="right")
    for k in np.unique(owner):
        rows = np.flatnonzero(owner == k)
        part = windows(ids[roles[k]][side], drawn[rows] - begins[k])
        x[rows], y[rows] = part["x"], part["y"]
    return {"x": x, "y": y}


def draw_runs(ids: Ids, names, side: int, size: int, seed: int) -> Examples:
    """Draws one contiguous run of `size` windows per role; other arguments as for `draw_pooled_windows`."""
    parts = []
    for position, role in enumerate(names):
        text = ids[role][side]
        first = generator(seed + position, "shakespeare run", side).integers(len(text) - LENGTH - size + 1)
        parts.append(windows(text, first + np.arange(size)))
    return {key: np.concatenate([part[key] for part in parts]) for key in ("x", "y")}
