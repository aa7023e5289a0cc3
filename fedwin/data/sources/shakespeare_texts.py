"""The texts behind Shakespeare in the LEAF form, from LEAF's JSON files or from the plays themselves."""

import pathlib

import numpy as np

from fedwin.data.dataset import Examples
from fedwin.data.formats import checksums, files, leaf, plays
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


def count_unknown(text: str) -> int:
    """Returns the number of characters outside the alphabet."""
    return sum(character not in ALPHABET for character in text)


def windows(ids: np.ndarray, starts: np.ndarray) -> Examples:
    """Returns x int32 [n, 80] = ids[s : s + 80] and y int32 [n] = ids[s + 80] for every start s."""
    x = ids[np.asarray(starts)[:, None] + np.arange(LENGTH)].astype(np.int32)
    return {"x": x, "y": ids[np.asarray(starts) + LENGTH].astype(np.int32)}


def join_windows(x: list[str], y: list[str], where) -> tuple[str, int]:
    """Returns the text behind a user's windows and their stride, 1 or 80; 0 where one window does not tell.

    Raises:
      UserError: a window that is not 80 characters and the next one, or one that does not continue where the last
        one ends.
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
        f"{where}, window {max(overlapping, apart)}: it does not continue where the window before ends; take LEAF's "
        f"samples by role (-s niid), of which iid=true draws the iid ones."
    )


def texts_of_leaf(folders) -> dict[str, tuple[str, str]]:
    """Returns role -> (training text, test text) of LEAF's folders.

    Windows that do not overlap leave 80 times fewer examples than LEAF's own: train and test are joined again then and
    the text itself is cut.
    """
    sides: list[dict[str, str]] = [{}, {}]
    strides: dict[int, str] = {}
    for side, folder in zip(sides, folders):
        for path, user, x, y in leaf.read(folder):
            where = f"{path}, client '{user}'"
            side[user], stride = join_windows(x, y, where)
            if stride and strides and stride not in strides:
                raise UserError(f"{where}: its windows are {stride} apart, those of {strides.popitem()[1]} are not.")
            if stride:
                strides.setdefault(stride, where)
    pairs = {user: (text, sides[1].get(user, "")) for user, text in sides[0].items()}
    if LENGTH not in strides:
        return pairs
    for user, (train, test) in pairs.items():
        if test and train[-1:] != test[0]:
            raise UserError(f"{folders[1]}, client '{user}': it does not continue where its training windows end.")
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
    entry: dict[str, pathlib.Path | bytes]
    if files.plain(pathlib.Path(place).name).endswith(".txt"):
        entry = {files.plain(pathlib.Path(place).name): pathlib.Path(place)}
    else:
        entry = files.entries(place, lambda name: name.endswith(".txt"))
    texts = {name.removesuffix(".txt"): files.content(held).decode("utf-8", "replace") for name, held in entry.items()}
    whole = [text for text in texts.values() if plays.is_gutenberg(text)]
    found = plays.text_by_role_of_gutenberg(whole[0]) if whole else plays.text_by_role(texts)
    if texts and not found:
        raise UserError(
            f"{place}: no role speaks in it; a play has lines `ROLE<TAB>text` after `ACT I`, Project Gutenberg's "
            f"pg100.txt has lines `  Role. text`."
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
