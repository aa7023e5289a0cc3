"""Lists what is available, the user's own code included.

fedwin list algorithms|models|datasets|partitions|observers|wrappers|losses|augmentations|strategies
fedwin list presets           flagfiles that are shipped, for --flagfile=NAME
fedwin list runs [FOLDER]     runs below a folder (runs/), and how far they are
"""

from fedwin.algorithms import ALGORITHMS
from fedwin.augment import AUGMENTATIONS
from fedwin.data import DATASETS, PARTITIONS
from fedwin.engine.strategy import STRATEGIES
from fedwin.errors import UserError
from fedwin.losses import LOSSES
from fedwin.models import MODELS
from fedwin.observers import OBSERVERS
from fedwin.registry import nearest
from fedwin.wrappers import WRAPPERS

from . import binary, presets, run_list

# `fedwin list` takes words, not only flags.
TAKES_WORDS = True
REGISTRIES = {
    "algorithms": ALGORITHMS,
    "models": MODELS,
    "datasets": DATASETS,
    "partitions": PARTITIONS,
    "observers": OBSERVERS,
    "wrappers": WRAPPERS,
    "losses": LOSSES,
    "augmentations": AUGMENTATIONS,
    "strategies": STRATEGIES,
}
WORDS = (*REGISTRIES, "presets", "runs")


def listed(word: str, rest: list[str]) -> str:
    """Returns what `fedwin list WORD` prints; raises UserError for an unknown word."""
    if word not in WORDS:
        raise UserError(f"there is no list of '{word}'.{nearest(word, WORDS)} Known: {', '.join(WORDS)}.")
    if len(rest) > (word == "runs"):
        raise UserError(f"'{rest[-1]}' is one word too many; write `fedwin list {word}`.")
    if word == "runs":
        return run_list.table(*rest)
    if word == "presets":
        return presets.table()
    return REGISTRIES[word].table("plain")


def define_flags() -> dict[str, list[str]]:
    """This binary has no flags of its own."""
    return {}


def main(argv: list[str]) -> None:
    """Prints one list."""
    if len(argv) < 2:
        raise UserError(f"say what to list: fedwin list {'|'.join(WORDS)}.")
    print(listed(argv[1], argv[2:]))


if __name__ == "__main__":
    binary.run(main, define_flags, words=TAKES_WORDS)
