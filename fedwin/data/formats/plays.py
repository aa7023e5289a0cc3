"""Finds plays in plain text, and extracts the speeches of each role from them.

In a file of one play a speech begins `ROLE<TAB>text` and continues on lines that begin with a tab, also after a blank
line or a stage direction in brackets. Project Gutenberg's complete works `pg100.txt`, which LEAF uses, mark speeches by
indentation.
"""

import pathlib
import re
from collections.abc import Iterator

from fedwin.data.formats import files

STAGE = re.compile(r"\[[^\[\]]*\]")
START = re.compile(r"^\s*ACT I\b", re.MULTILINE)
ROLE = re.compile(r"[A-Z][^\t]*")
HEADING = re.compile(r"(ACT|SCENE|PROLOGUE|EPILOGUE|INDUCTION) ?[IVXLC]*$")

# Project Gutenberg's complete works: each play names its author, and the last one ends at this line.
AUTHOR, PLAYS_END = "by William Shakespeare", 124_197
SPEECH = re.compile(r"  ([A-Za-z][A-Za-z ]*)\. (.*)")
# The one play that is not indented.
UNINDENTED, UNINDENTED_SPEECH = "THE COMEDY OF ERRORS", re.compile(r"([A-Za-z][A-Za-z ]*)\. (.*)")


def locations(data_dir, *names: str) -> Iterator[pathlib.Path]:
    """Yields the places that may have plays: files with these names, folders `plays`, and folders below data_dir."""
    for folder in files.folders(data_dir, "shakespeare*"):
        places = (*(files.locate(folder, name) for name in names), folder / "plays", folder)
        yield from (place for place in places if place is not None and place.exists())


def read(location: pathlib.Path) -> dict[str, str]:
    """Returns name -> text of the text files in a folder or an archive, or of one text file, sorted by name."""
    name, wanted = files.plain(location.name), lambda name: name.endswith(".txt")
    entries: dict[str, files.Entry] = {name: location} if wanted(name) else files.entries(location, wanted)
    decode = lambda entry: files.content(entry).decode("utf-8", "replace")
    return {name.removesuffix(".txt"): decode(entry) for name, entry in sorted(entries.items())}


def text_by_role(texts: dict[str, str]) -> dict[str, str]:
    """Joins the speeches of each role with at least two: play -> text becomes `PLAY_ROLE` -> text."""
    result = {}
    for play, text in sorted(texts.items()):
        for role, said in sorted(speeches_by_role(text).items()):
            if len(said) > 1:
                result[re.sub(r"\W+", "_", f"{play}_{role}".upper()).strip("_")] = " ".join(said)
    return result


def speeches_by_role(text: str) -> dict[str, list[str]]:
    """Extracts the speeches of a play, from `ACT I` on: role -> its speeches in order.

    Speeches of several roles at once (with `|`) are left out, stage directions and running heads with the play's title
    removed, and white space is folded to single spaces.
    """
    start = START.search(text)
    if not start:
        return {}
    title = text.split("\n\n")[0].strip()
    speeches: dict[str, list[list[str]]] = {}
    speech: list[str] = []  # lines of the current speech; at first of none
    half_name = ""  # first half of a role's name that is broken over two lines
    for line in STAGE.sub("", text[start.start() :].replace("\r", "")).split("\n"):
        role, tab, said = line.partition("\t")
        if role.strip():
            speech, role, half_name = [], f"{half_name} {role}".strip(), "" if tab else role.strip()
            if tab and ROLE.fullmatch(role) and "|" not in line and not HEADING.match(role.strip()):
                speeches.setdefault(role.strip(), []).append(speech)
        elif "|" in said:
            speech = []
        elif not said:
            half_name = ""
        if said.strip() != title:
            speech.append(said)
    folded = {role: [" ".join(" ".join(lines).split()) for lines in said] for role, said in speeches.items()}
    return {role: texts for role, said in folded.items() if (texts := [text for text in said if text])}


def is_gutenberg(text: str) -> bool:
    """Returns whether a text is the complete works rather than one play."""
    return text.count(AUTHOR) > 1


def text_by_role_of_gutenberg(text: str) -> dict[str, str]:
    """Joins all speeches of each role of at least three lines in the complete works, by LEAF's rules.

    Everything before the second occurrence of the author (the sonnets) is left out, a play's title is the nearest text
    two to seven lines above the author, and white space is folded to single spaces. Returns `PLAY_ROLE` -> text.
    """
    lines = text.splitlines()[1:PLAYS_END]
    starts = [at for at, line in enumerate(lines) if AUTHOR in line][1:]
    lines_of: dict[str, list[str]] = {}
    for at, end in zip(starts, [*starts[1:], len(lines)]):
        title = next((line.strip() for line in reversed(lines[max(at - 7, 0) : at - 1]) if line.strip()), "")
        said = lines_by_role(lines[at + 1 : end], title == UNINDENTED)
        for role, own in said.items():
            if len(own) >= 3 and len(said) > 1:  # a play has more than one role
                lines_of.setdefault(re.sub(r"\W+", "_", f"{title}_{role}"), []).extend(own)
    return {name: re.sub(" {2,}", " ", "".join(f"{line} " for line in own)) for name, own in lines_of.items()}


def lines_by_role(lines: list[str], unindented: bool) -> dict[str, list[str]]:
    """Extracts the lines of each role of one play: `  Role. text`, continued on lines that begin with four spaces.

    In the play without indentation speeches continue up to a heading or a publisher's note.
    """
    said: dict[str, list[str]] = {}
    role = None
    for line in lines:
        if match := (UNINDENTED_SPEECH if unindented else SPEECH).match(line):
            role = match[1].upper()  # some names come in several cases
            if unindented and role.startswith("ACT "):
                role = None
            else:
                said.setdefault(role, []).append(match[2])
        elif unindented and line.startswith("<"):
            role = None
        elif role and (unindented or line.startswith("    ")):
            said[role].append(line if unindented else line[4:])
    return said
