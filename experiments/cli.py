"""The command `fedwin`: its binaries as words."""

import difflib
import importlib
import sys
from collections.abc import Sequence

# word -> (module, what it does)
WORDS = {
    "train": ("train", "train one federated run; without flags the main job (handwritten digits)"),
    "compare": ("compare", "train several methods on the same seeds and print one table"),
    "reproduce": ("reproduce", "train, check and draw the tables and figures of four papers"),
    "sweep": ("sweep", "train every point of a grid over flags and name the best"),
    "list": ("listing", "list algorithms, models, datasets, partitions, ..., presets, or the runs below a folder"),
    "curves": ("curve_picture", "lay curves of runs, and of results that were kept, over each other"),
    "figure": ("figure", "draw planes, lines, factors, forgetting, smoothness, targets, sweeps, label histograms"),
    "partition": ("partition", "show how a partition deals a data set to clients"),
    "prepare": ("prepare", "download, verify and pack a data set"),
    "citation": ("cite", "print the BibTeX of methods, or of all that a run used"),
    "bench": ("bench", "time fedwin against FedJAX, PyTorch and pfl-research"),
    "scaling": ("scaling", "count what devices exchange in a round, and model how it scales"),
    "stream_demo": ("stream_demo", "train on more images than the memory holds"),
}


def usage() -> str:
    """Returns the words, one per line."""
    lines = [f"  fedwin {word:<12} {told}" for word, (_, told) in WORDS.items()]
    return "\n".join(["Federated-learning simulation in JAX. fedwin WORD --help explains a word.", *lines])


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the binary that the first argument names; an unknown word is one line and exit status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "-help", "--help", "help"):
        print(usage())
        return
    word, *rest = given
    if word == "--version":
        print(importlib.import_module("fedwin").__version__)
        return
    if word not in WORDS:
        match = difflib.get_close_matches(word, WORDS, n=1, cutoff=0.5)
        meant = f" Did you mean '{match[0]}'?" if match else ""
        print(f"error: fedwin has no word '{word}'.{meant} It has: {', '.join(WORDS)}.", file=sys.stderr)
        sys.exit(2)
    # Only what is run is imported: the words themselves must come at once.
    binary = importlib.import_module(".binary", __package__)
    module = importlib.import_module(f".{WORDS[word][0]}", __package__)
    binary.run(module.main, module.define_flags, [f"fedwin {word}", *rest], words=getattr(module, "TAKES_WORDS", False))
