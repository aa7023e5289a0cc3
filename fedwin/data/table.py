"""What is known of every data set, as its loader states it: a table for the README, and a list for the terminal."""

from fedwin.data import download
from fedwin.data.registries import DATASETS

HEAD = ("data set", "flag", "how to get it", "clients / train / test", "prepared in", "cache")
STAND_INS = ("stand-ins", "`<name>_synthetic`", "nothing to get", "like the original's, smaller", "", "")


def markdown() -> str:
    """Returns the table of the README: a row per data set that has a title, those of user files last."""
    known = [entry for entry in DATASETS.entries.values() if entry.facts["title"]]
    known.sort(key=lambda entry: (entry.facts["sizes"] == "your own", entry.facts["title"].lower()))
    rows = []
    for entry in known:
        facts = entry.facts
        rows.append(
            (
                facts["title"],
                facts["flag"] or f"`{entry.name}`",
                facts["how"],
                facts["sizes"],
                facts["prepared"],
                facts["cache"],
            )
        )
    lines = ["| " + " | ".join(row) + " |" for row in (HEAD, *rows, STAND_INS)]
    return "\n".join([lines[0], "|" + "---|" * len(HEAD), *lines[1:]])


def listing() -> str:
    """Returns a line per data set: name, where its files come from, and parameters."""
    lines = []
    for name, entry in sorted(DATASETS.entries.items()):
        how, by_hand = entry.facts["how"], entry.facts["by_hand"]
        if listed := download.sources(name):
            how = "downloads " + ", ".join(url.rsplit("/", 1)[-1] for url, _, _ in listed)
            how += f"; by hand: {by_hand}" if by_hand else ""
        elif by_hand:
            how = f"by hand: {by_hand}"
        options = ", ".join(DATASETS.options(name))
        lines.append(f"{name:28} {how}" + (f"  [{options}]" if options else ""))
    return "\n".join(lines)
