"""Lists all data sets: the guide's table, and the output of `fedwin prepare --list`."""

from fedwin.data import download
from fedwin.data.dataset import DATASETS

HEAD = ("data set", "flag", "how to obtain it", "clients / train / test", "prepared in", "cache")
STAND_INS = ("stand-ins", "`<name>_synthetic`", "no files needed", "like the original's, smaller", "", "")


def markdown() -> str:
    """Returns the guide's table: one row per data set with a title, those read from the user's own files last."""
    titled = [entry for entry in DATASETS.entries.values() if entry.facts["title"]]
    titled.sort(key=lambda entry: (entry.facts["sizes"] == "your own", entry.facts["title"].lower()))
    columns = lambda facts: [facts[key] for key in ("how", "sizes", "prepared", "cache")]
    flag = lambda entry: entry.facts["flag"] or f"`{entry.name}`"
    rows = [(entry.facts["title"], flag(entry), *columns(entry.facts)) for entry in titled]
    lines = ["| " + " | ".join(row) + " |" for row in (HEAD, *rows, STAND_INS)]
    return "\n".join([lines[0], "|" + "---|" * len(HEAD), *lines[1:]])


def listing() -> str:
    """Returns one line per data set: its name, how to obtain its files, and its parameters."""
    lines = []
    for name, entry in sorted(DATASETS.entries.items()):
        how, by_hand = entry.facts["how"], entry.facts["by_hand"]
        if urls := download.download_urls(name):
            how = "downloads " + ", ".join(url.rsplit("/", 1)[-1] for url, _, _ in urls)
            how += f"; by hand: {by_hand}" if by_hand else ""
        elif by_hand:
            how = f"by hand: {by_hand}"
        options = ", ".join(DATASETS.options(name))
        lines.append(f"{name:28} {how}" + (f"  [{options}]" if options else ""))
    return "\n".join(lines)
