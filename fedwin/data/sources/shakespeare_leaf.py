"""Shakespeare in the LEAF form: 80 characters predict the next one; 100 roles of 2,000 training and 400 test windows.

LEAF: Caldas et al. 2018, https://arxiv.org/abs/1812.01097. The cut to 100 x 2,000 is FedDyn's, Acar et al. 2021,
https://arxiv.org/abs/2111.04263, and generalised heavy-ball momentum's, Zaccone et al. 2023,
https://arxiv.org/abs/2311.18578.
"""

import json
import pathlib
import warnings

import numpy as np

from fedwin.data.dataset import Dataset, Examples, Partition, offsets
from fedwin.data.formats import checksums, files, leaf, plays, values
from fedwin.data.registries import DATASETS
from fedwin.data.rng import generator
from fedwin.errors import UserError

LENGTH = 80
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
# LEAF looks characters up with a find that is -1 for strangers, which as a one-hot index silently becomes the last
# class.
UNKNOWN = len(ALPHABET) - 1

TABLE = np.full(0x110000, UNKNOWN, np.int8)
TABLE[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))


def encode(text: str) -> np.ndarray:
    """Returns the int8 ids of a text; characters outside the alphabet become 79."""
    return TABLE[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)]


def strangers(text: str) -> int:
    """Returns the number of characters outside the alphabet."""
    return sum(character not in ALPHABET for character in text)


def windows(ids: np.ndarray, starts: np.ndarray) -> Examples:
    """Returns x int32 [n, 80] = ids[s : s + 80] and y int32 [n] = ids[s + 80] for every start s."""
    x = ids[np.asarray(starts)[:, None] + np.arange(LENGTH)].astype(np.int32)
    return {"x": x, "y": ids[np.asarray(starts) + LENGTH].astype(np.int32)}


def joined(x: list[str], y: list[str], where) -> tuple[str, int]:
    """Returns the text behind a user's windows and their stride, 1 or 80; 0 where one window does not tell.

    Raises:
      UserError: a window that is not 80 characters and the next one, or that does not go on where the one before ends.
    """
    for row, (window, label) in enumerate(zip(x, y)):
        if not (isinstance(window, str) and len(window) == LENGTH and isinstance(label, str) and len(label) == 1):
            raise UserError(f"{where}, window {row}: not a text of {LENGTH} characters and the character after it.")
    if len(x) < 2:
        return "".join(x) + "".join(y), 0
    pairs = lambda: zip(x[:-1], y[:-1], x[1:])
    overlapping = next((row for row, (a, label, b) in enumerate(pairs(), 1) if b != a[1:] + label), 0)
    if not overlapping:
        return x[0] + "".join(y), 1
    apart = next((row for row, (_, label, b) in enumerate(pairs(), 1) if b[0] != label), 0)
    if not apart:
        return "".join(x) + y[-1], LENGTH
    raise UserError(
        f"{where}, window {max(overlapping, apart)}: it does not go on where the window before ends; take LEAF's samples "
        f"by role (-s niid), of which iid=true draws the iid ones."
    )


def texts_of_leaf(folders) -> dict[str, tuple[str, str]]:
    """Returns role -> (training text, test text) of LEAF's folders.

    Windows that do not overlap leave 80 times fewer examples than LEAF's own: train and test are joined again then and
    the text itself is cut.
    """
    sides, strides = [{}, {}], {}
    for side, folder in zip(sides, folders):
        for path, user, x, y in leaf.read(folder):
            where = f"{path}, client '{user}'"
            side[user], stride = joined(x, y, where)
            if stride and strides and stride not in strides:
                raise UserError(f"{where}: its windows are {stride} apart, those of {strides.popitem()[1]} are not.")
            if stride:
                strides.setdefault(stride, where)
    pairs = {user: (text, sides[1].get(user, "")) for user, text in sides[0].items()}
    if LENGTH not in strides:
        return pairs
    for user, (train, test) in pairs.items():
        if test and train[-1:] != test[0]:
            raise UserError(f"{folders[1]}, client '{user}': it does not go on where its training windows end.")
    return split({user: train[:-1] + test if test else train for user, (train, test) in pairs.items()})


def split(texts: dict[str, str], fraction: float = 0.8) -> dict[str, tuple[str, str]]:
    """Cuts every text by LEAF's rule: of its n windows the first 0.8 n train and the last n - 0.8 n - 79 test."""
    result = {}
    for role, text in texts.items():
        count = int(fraction * max(len(text) - LENGTH, 0))
        result[role] = (text[: count + LENGTH], text[count + LENGTH - 1 :])
    return result


def texts_of_plays(place) -> dict[str, str]:
    """Returns `PLAY_ROLE` -> text from a text file, or a folder or archive of them.

    Raises:
      UserError: texts in which no role speaks.
    """
    if files.plain(pathlib.Path(place).name).endswith(".txt"):
        entry = {files.plain(pathlib.Path(place).name): pathlib.Path(place)}
    else:
        entry = files.entries(place, lambda name: name.endswith(".txt"))
    texts = {name.removesuffix(".txt"): files.content(held).decode("utf-8", "replace") for name, held in entry.items()}
    whole = [text for text in texts.values() if plays.is_gutenberg(text)]
    found = plays.gutenberg(whole[0]) if whole else plays.roles(texts)
    if texts and not found:
        raise UserError(
            f"{place}: no role speaks in it; a play has lines `ROLE<TAB>text` after `ACT I`, Project Gutenberg's pg100.txt "
            f"has lines `  Role. text`."
        )
    return found


def find(data_dir) -> dict[str, tuple[str, str]]:
    """Returns role -> (training text, test text) from LEAF JSON or, failing that, from plays."""
    if folders := leaf.find(data_dir, "shakespeare*"):
        return texts_of_leaf(folders)
    for folder in files.folders(data_dir, "shakespeare*"):
        whole = files.locate(folder, "pg100.txt")
        places = [whole, folder / "plays.tar.xz", folder / "plays", folder] if folder.is_dir() else [folder]
        for place in filter(None, places):
            if place.is_file() or (place.is_dir() and any(place.glob("*.txt"))):
                if files.plain(place.name) == "pg100.txt":
                    checksums.verify("shakespeare_leaf", [(str(place), place, files.read(place))])
                if found := texts_of_plays(place):
                    return split(found)
    raise files.missing(
        "shakespeare_leaf",
        data_dir,
        "LEAF JSON (train/ and test/), Project Gutenberg's pg100.txt or plays in plain text",
        "https://github.com/TalwalkarLab/leaf",
    )


@DATASETS.register(
    "shakespeare_leaf",
    title="Shakespeare, LEAF form",
    how="by hand: LEAF JSON, or the plays in plain text (`ROLE<TAB>line`, or LEAF's `pg100.txt`)",
    sizes="100 / 200,000 / 40,000",
    prepared="5.0 s",
    cache="75 MiB",
    by_hand="LEAF's Shakespeare JSON, made by https://github.com/TalwalkarLab/leaf, or its source, pg100.txt of Project "
    "Gutenberg, or plays in plain text",
    checksums={"pg100.txt": ("md5", "036d0f9cf7296f41165c2e6da1e52a0e")},
)
def shakespeare_leaf(
    data_dir, *, clients: int = 100, train: int = 2000, test: int = 400, iid: bool = False, seed: int = 0
) -> Dataset:
    """100 roles x 2,000 windows: x int32 [N, 80], y int32 [N] the next character, 80 ids.

    Roles with more than `train` training and more than `test` test windows are shuffled with the seed and the first
    `clients` taken; of each a contiguous run of windows is drawn, from the generator of (seed + position).

    Args:
      clients, train, test: numbers of roles, training windows and test windows per role.
      iid: draw windows from all roles together and deal them in equal parts instead.
      seed: which roles and which runs.

    Raises:
      UserError: nothing found, or too few roles that are long enough.
    """
    ready = prepared(data_dir, iid)
    if ready:
        return build(*ready, {})
    texts = find(data_dir)
    unknown = sum(strangers(part) for pair in texts.values() for part in pair)
    ids = {role: tuple(encode(part) for part in pair) for role, pair in texts.items()}
    count = lambda side: {role: max(len(pair[side]) - LENGTH, 0) for role, pair in ids.items()}
    train_count, test_count = count(0), count(1)
    if iid:
        sides = [
            pooled(ids, side, counts, clients * size, seed)
            for side, (counts, size) in enumerate(((train_count, train), (test_count, test)))
        ]
        names = np.array([f"iid_{k}" for k in range(clients)])
    else:
        fit = sorted(role for role in ids if train_count[role] > train and test_count[role] > test)
        if len(fit) < clients:
            raise UserError(
                f"shakespeare_leaf: only {len(fit)} of {len(ids)} roles have more than {train} training and "
                f"{test} test windows, and {clients} were asked for; give fewer clients or shorter runs."
            )
        names = np.array([fit[i] for i in generator(seed, "shakespeare roles").permutation(len(fit))[:clients]])
        sides = [runs(ids, names, side, size, seed) for side, size in ((0, train), (1, test))]
    report = {"unknown_characters": unknown}
    return build(sides[0], sides[1], names, train, test, report)


def runs(ids: dict, names, side: int, size: int, seed: int) -> Examples:
    """Returns one contiguous run of `size` windows per role."""
    parts = []
    for position, role in enumerate(names):
        text = ids[role][side]
        first = generator(seed + position, "shakespeare run", side).integers(len(text) - LENGTH - size + 1)
        parts.append(windows(text, first + np.arange(size)))
    return {key: np.concatenate([part[key] for part in parts]) for key in ("x", "y")}


def pooled(ids: dict, side: int, counts: dict, total: int, seed: int) -> Examples:
    """Returns `total` windows drawn without replacement from all roles together, in random order."""
    roles = sorted(ids)
    begins = offsets([counts[role] for role in roles])
    if begins[-1] < total:
        raise UserError(f"shakespeare_leaf: {total} windows were asked for, but all roles together have {begins[-1]}.")
    drawn = generator(seed, "shakespeare iid", side).choice(begins[-1], total, replace=False)
    x, y = np.zeros((total, LENGTH), np.int32), np.zeros(total, np.int32)
    owner = np.searchsorted(begins[1:], drawn, side="right")
    for k in np.unique(owner):
        rows = np.flatnonzero(owner == k)
        part = windows(ids[roles[k]][side], drawn[rows] - begins[k])
        x[rows], y[rows] = part["x"], part["y"]
    return {"x": x, "y": y}


def build(train_examples, test_examples, names, train: int, test: int, report: dict) -> Dataset:
    """Makes the data set of equal clients."""
    if report.get("unknown_characters"):
        warnings.warn(
            f"shakespeare_leaf: {report['unknown_characters']} characters outside the alphabet became id {UNKNOWN}.",
            stacklevel=4,
        )
    equal = lambda size: Partition(
        np.arange(len(names) * size, dtype=np.int32), np.arange(len(names) + 1, dtype=np.int64) * size, report, names
    )
    return Dataset(
        "shakespeare_leaf",
        train_examples,
        test_examples,
        len(ALPHABET),
        natural=equal(train),
        verified=False,
        test_natural=equal(test),
    )


def prepared(data_dir, iid: bool):
    """Reads the heavy-ball code's ready files, `train_sampled_{niid,iid}.json` and `test_sampled.json`, if there."""
    for folder in files.folders(data_dir, "shakespeare*"):
        pair = [folder / f"train_sampled_{'iid' if iid else 'niid'}.json", folder / "test_sampled.json"]
        if all(path.is_file() for path in pair):
            (train, size, count), (test, test_size, test_clients) = (sampled(path) for path in pair)
            if test_clients != count:
                raise UserError(f"{pair[1]}: {test_clients} clients, but {count} in {pair[0].name}.")
            return train, test, np.array([f"{k:03d}" for k in range(count)]), size, test_size
    return None


def sampled(path: pathlib.Path) -> tuple[Examples, int, int]:
    """Reads keys x, y: one list per client, all of one length, of windows given as ids or as text."""
    blob = files.read(path)
    with values.naming(f"{path}: not lists of windows under x and y"):
        content = json.loads(blob)
        x, y = content["x"], content["y"]
        size = len(x[0])
        if any(len(part) != size for part in [*x, *y]) or len(x) != len(y):
            raise ValueError("clients differ in size")
        if isinstance(x[0][0], str):
            x = np.stack([encode(window) for part in x for window in part])
            y = encode("".join(label for part in y for label in part))
        x = values.within(np.asarray(x).reshape(-1, LENGTH), 0, UNKNOWN, "character id").astype(np.int32)
        y = values.labels(np.asarray(y).reshape(-1), len(ALPHABET))
        if len(x) != len(y):
            raise ValueError(f"{len(x)} windows and {len(y)} next characters")
    return {"x": x, "y": y}, size, len(y) // size
