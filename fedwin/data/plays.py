"""Plain text of plays, split into what each role says.

In a play a speech begins `ROLE<TAB>text` and goes on on lines that begin with a tab, also after a blank line or a stage
direction, which stands in brackets.
"""

import re

STAGE = re.compile(r"\[[^\[\]]*\]")
START = re.compile(r"^\s*ACT I\b", re.MULTILINE)
ROLE = re.compile(r"[A-Z][^\t]*")
HEADING = re.compile(r"(ACT|SCENE|PROLOGUE|EPILOGUE|INDUCTION) ?[IVXLC]*$")


def speeches(text: str) -> dict[str, list[str]]:
    """Returns role -> its speeches in order, from `ACT I` on.

    Speeches of several roles at once (with `|`) are left out, stage directions and the play's title, which is
    repeated as a running head, removed, and white space folded to single spaces.
    """
    start = START.search(text)
    if not start:
        return {}
    title = text.split("\n\n")[0].strip()
    found: dict[str, list[str]] = {}
    speech: list[str] = []  # lines of no one's
    broken = ""  # the first half of a role's name that is broken over two lines
    for line in STAGE.sub("", text[start.start() :].replace("\r", "")).split("\n"):
        role, tab, said = line.partition("\t")
        if role.strip():
            speech, role, broken = [], f"{broken} {role}".strip(), "" if tab else role.strip()
            if tab and ROLE.fullmatch(role) and "|" not in line and not HEADING.match(role.strip()):
                found.setdefault(role.strip(), []).append(speech)
        elif "|" in said:
            speech = []
        elif not said:
            broken = ""
        if said.strip() != title:
            speech.append(said)
    folded = {role: [" ".join(" ".join(lines).split()) for lines in said] for role, said in found.items()}
    return {role: kept for role, said in folded.items() if (kept := [text for text in said if text])}


def roles(texts: dict[str, str], min_speeches: int = 2) -> dict[str, str]:
    """Returns `PLAY_ROLE` -> all that the role says, for roles with at least min_speeches speeches.

    Args:
      texts: play -> its text.
    """
    result = {}
    for play, text in sorted(texts.items()):
        for role, said in sorted(speeches(text).items()):
            if len(said) >= min_speeches:
                result[re.sub(r"\W+", "_", f"{play}_{role}".upper()).strip("_")] = " ".join(said)
    return result
