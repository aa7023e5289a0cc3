"""Texts of Shakespeare's roles in LEAF's form, from LEAF's JSON files or from the plays."""

import pathlib

import numpy as np

from fedwin.data.dataset import Examples
from fedwin.data.formats import checksums, files, leaf, plays
from fedwin.errors import UserError

LENGTH = 80
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
# LEAF's lookup returns -1 for other characters, which as a one-hot index silently becomes the last class.
UNKNOWN = len(ALPHABET) - 1

TABLE = np.full(0x110000, UNKNOWN, np.int8)
TABLE[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))


def find(data_dir) -> dict[str, tuple[str, str]]:
    """Reads role -> (training text, test text) from LEAF's JSON files or else from plays below data_dir.

    Raises:
      UserError: no files, or damaged ones.
    """
    if folders := leaf.find(data_dir, "shakespeare*"):
        return texts_of_leaf(folders)
    for location in plays.locations(data_dir, "pg100.txt", "plays.tar"):
        if files.plain(location.name) == "pg100.txt":
            checksums.verify_files("shakespeare_leaf", [location])
        if texts := texts_of_plays(location):
            return split(texts)
    raise files.missing(
        "shakespeare_leaf",
        data_dir,
        "LEAF JSON (train/ and test/), Project Gutenberg's pg100.txt or plays in plain text",
        "https://github.com/TalwalkarLab/leaf",
    )


def texts_of_leaf(folders) -> dict[str, tuple[str, str]]:
    """Reconstructs role -> (training text, test text) from LEAF's folders (train, test).

    Windows that do not overlap are 80 times fewer than LEAF's own; then training and test text are joined and split
    again.

    Raises:
      UserError: damaged files, or windows that do not continue each other.
    """
    sides: list[dict[str, str]] = [{}, {}]
    strides: dict[int, str] = {}
    for side, folder in zip(sides, folders):
        for path, user, x, y in leaf.read(leaf.parts(folder)):
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


def join_windows(x: list[str], y: list[str], where) -> tuple[str, int]:
    """Reconstructs the text behind a user's windows x and next characters y: (text, stride 1 or 80, 0 if ambiguous).

    Raises:
      UserError: a window that is not 80 characters and the next one, or that does not continue the previous one.
    """
    for row, (window, label) in enumerate(zip(x, y)):
        if not (isinstance(window, str) and len(window) == LENGTH and isinstance(label, str) and len(label) == 1):
            raise UserError(f"{where}, window {row}: not a text of {LENGTH} characters and the character after it.")
    if len(x) < 2:
        return "".join(x) + "".join(y), 0
    for stride in (1, LENGTH):
        text = "".join(window[:stride] for window in x) + x[-1][stride:] + y[-1]
        if all(text.startswith(window + label, row * stride) for row, (window, label) in enumerate(zip(x, y))):
            return text, stride
    raise UserError(
        f"{where}: its windows do not continue each other; use LEAF's samples by role (-s niid), of which iid=true "
        f"draws the iid ones."
    )


def texts_of_plays(location: pathlib.Path) -> dict[str, str]:
    """Reads `PLAY_ROLE` -> text from a text file, or a folder or archive of plays.

    Raises:
      UserError: texts in which no role speaks.
    """
    texts = plays.read(location)
    complete = [text for text in texts.values() if plays.is_gutenberg(text)]
    by_role = plays.text_by_role_of_gutenberg(complete[0]) if complete else plays.text_by_role(texts)
    if texts and not by_role:
        raise UserError(
            f"{location}: no role speaks in it; a play must have lines `ROLE<TAB>text` after `ACT I`, Project "
            f"Gutenberg's pg100.txt has lines `  Role. text`."
        )
    return by_role


def split(texts: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Splits role -> text to (training text, test text) by LEAF's rule.

    Of n windows the first 0.8 n are for training and the last n - 0.8 n - 79 for testing.
    """
    result = {}
    for role, text in texts.items():
        count = int(0.8 * max(len(text) - LENGTH, 0))
        result[role] = (text[: count + LENGTH], text[count + LENGTH - 1 :])
    return result


def encode(text: str) -> np.ndarray:
    """Converts a text to int8 ids; characters outside the alphabet become 79."""
    return TABLE[np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)]


def windows(ids: np.ndarray, starts: np.ndarray) -> Examples:
    """Returns x int32 [n, 80] = ids[s : s + 80] and y int32 [n] = ids[s + 80] for every start s in `starts` [n]."""
    x = ids[np.asarray(starts)[:, None] + np.arange(LENGTH)].astype(np.int32)
    return {"x": x, "y": ids[np.asarray(starts) + LENGTH].astype(np.int32)}
