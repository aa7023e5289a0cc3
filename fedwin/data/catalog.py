"""Lists all data sets, for `fedwin prepare --list`."""

from fedwin.data import download
from fedwin.data.dataset import DATASETS


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
